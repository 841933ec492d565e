"""Create tokenisers: of bytes, of the words of a text, and byte-level BPE, learned or loaded."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Core

from lrpe.errors import LrpeError, require
from lrpe.lab.data.text.tokenizer import Tokenizer

_GPT2 = (
    ("encoder.json", "vocab.bpe"),
    ("vocab.json", "merges.txt"),
)  # the two files, with OpenAI's names and with the hub's
_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")  # in this order
_LARGEST_BPE = 1_000_000  # entries; tokenizers aborts the process if it cannot allocate the vocabulary
_MULTIPLE = 8  # fairseq pads a vocabulary of words to a multiple of this


def byte_level() -> Tokenizer:
    """Return a tokeniser of 256 bytes, each its own id; then <pad> (256, as in Long-Range Arena), <s>, </s>, <mask>."""
    alphabet = {character: byte for byte, character in enumerate(byte_characters())}
    core = _make_byte_core(models.BPE(vocab=alphabet, merges=[]))
    core.add_special_tokens(["<pad>", "<s>", "</s>", "<mask>"])
    return Tokenizer(core, encode=_encode_bytes)


def _encode_bytes(core: Core, texts: Sequence[str]) -> list[np.ndarray]:
    """Return the same ids as the core, but faster."""
    return [np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.int64) for text in texts]


def byte_characters() -> list[str]:
    """Return the printable characters that GPT-2's BPE uses for the bytes 0 ... 255."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _make_byte_core(model: models.Model) -> Core:
    core = Core(model)
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    core.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    return core


def learn_words(texts: Iterable[str]) -> Tokenizer:
    """Return a tokeniser of words between spaces, and </s> for the end of a line: fairseq's vocabulary for WikiText.

    The entries are <s>, <pad>, </s>, <unk>, the words from the most frequent to the rarest (ties in alphabetical
    order), then <mask>, which is ours, and madeupword entries up to a multiple of 8. WikiText-103's 267,733 words and
    <unk> give 267,744.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text.split())
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    entries = [*_FAIRSEQ, *(word for word in ranked if word not in (*_FAIRSEQ, "<mask>")), "<mask>"]
    entries += [f"madeupword{number:04d}" for number in range(-len(entries) % _MULTIPLE)]
    core = Core(models.WordLevel({word: number for number, word in enumerate(entries)}, unk_token="<unk>"))
    core.normalizer = normalizers.Replace("\n", " </s> ")  # type: ignore[assignment]
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    spaced = [decoders.Replace(Regex("^(?=.)"), " "), decoders.Replace(" </s>", "\n"), decoders.Fuse()]
    core.decoder = decoders.Sequence(spaced)  # type: ignore[assignment]
    core.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in (*_FAIRSEQ, "<mask>")])
    return Tokenizer(core)


def bpe_size(name: str) -> int | None:
    """Return SIZE of "bpe:SIZE", or None if the name is not of that form.

    >>> bpe_size("bpe:8192"), bpe_size("bytes"), bpe_size("bpe:many")
    (8192, None, None)
    """
    match = re.fullmatch("bpe:([0-9]{1,12})", name)
    return int(match[1]) if match else None


def learn_bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """Learn byte-level BPE with ``size`` entries: <s>, <pad>, </s>, <mask>, the 256 bytes, the most frequent merges.

    Raises:
        LrpeError: ``size`` is too small for these, or above a million.
    """
    specials = ["<s>", "<pad>", "</s>", "<mask>"]
    least = 256 + len(specials)
    require(
        least <= size <= _LARGEST_BPE,
        f"BPE starts from 256 bytes and {len(specials)} special tokens, so SIZE must be from {least} to "
        f"{_LARGEST_BPE:,}; got bpe:{size}.",
    )
    core = _make_byte_core(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, initial_alphabet=byte_characters(), show_progress=False
    )
    core.train_from_iterator(texts, trainer)
    return Tokenizer(core)


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a tokenizer.json, a folder with one, or a folder with GPT-2's two files.

    Raises:
        LrpeError: there is none, or it is damaged.
    """
    file = path / "tokenizer.json" if path.is_dir() else path
    pair = next((pair for pair in _GPT2 if all((path / name).is_file() for name in pair)), None)
    require(
        file.is_file() or pair is not None,
        f"Expected a tokenizer.json or a folder with {' or '.join(' and '.join(two) for two in _GPT2)}; "
        f"{str(path)!r} is neither.",
    )
    try:
        if file.is_file():
            return Tokenizer(Core.from_file(str(file)))
        vocabulary, merges = (str(path / name) for name in pair or ())
        core = _make_byte_core(models.BPE.from_file(vocabulary, merges))
    except LrpeError:
        raise
    except Exception as error:  # tokenizers raises nothing narrower
        raise LrpeError(f"{str(path)!r} is not a valid tokeniser: {error}. Download the file again.") from error
    core.add_special_tokens(["<|endoftext|>"])
    return Tokenizer(core)


def hub_tokenizer(name: str, download: bool = False) -> Tokenizer:
    """Return the fast tokeniser of a model on the hub; none of the model's code runs.

    Args:
        name: the model's name.
        download: whether to download it; otherwise it must be on this machine.

    Raises:
        LrpeError: it cannot be read, or has no tokenizer.json.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    try:
        loaded = AutoTokenizer.from_pretrained(name, local_files_only=not download, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise LrpeError(
            f"The tokeniser {name!r} could not be read{'' if download else ' from this machine'}: {error} "
            "Download it first (huggingface-cli download), or pass the path of a tokenizer.json."
        ) from error
    if not isinstance(loaded, PreTrainedTokenizerFast):
        raise LrpeError(f"The tokeniser must have a tokenizer.json; {name!r} has none.")
    tokens = {role: getattr(loaded, f"{role}_token") for role in ("bos", "pad", "eos", "unk", "mask")}
    core = Core.from_str(loaded.backend_tokenizer.to_str())
    return Tokenizer(core, {role: token for role, token in tokens.items() if token is not None})
