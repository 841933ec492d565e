"""Text to token ids and back: one interface for bytes, words and byte-level BPE, learned or loaded."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Core

from lrpe.errors import LrpeError, require

_ROLES = {
    "bos": ("<s>", "<bos>", "[CLS]"),
    "pad": ("<pad>", "[PAD]"),
    "eos": ("</s>", "<eos>", "<|endoftext|>", "[SEP]"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
}  # the usual names of special tokens; the first is ours

_Encode = Callable[[Core, Sequence[str]], list[np.ndarray]]


def encode_by_core(core: Core, texts: Sequence[str]) -> list[np.ndarray]:
    """Return the ids of each text, computed by the threads of ``tokenizers``."""
    return [
        np.array(encoding.ids, dtype=np.int64) for encoding in core.encode_batch_fast(texts, add_special_tokens=False)
    ]


class Tokenizer:
    """A tokeniser of Hugging Face's ``tokenizers`` (``core``), with the roles of its special tokens.

    ``specials`` maps bos, pad, eos, unk and mask to their ids, as far as they exist; each document ends with eos. A
    special token written in a text is encoded as ordinary text.
    """

    def __init__(self, core: Core, names: dict[str, str] | None = None, encode: _Encode = encode_by_core):
        core.no_truncation()
        core.no_padding()
        core.encode_special_tokens = True
        self.core, self.encode_texts = core, encode
        self.names = _find_roles(core) if names is None else names
        known = core.get_vocab(with_added_tokens=True)
        missing = [token for token in self.names.values() if token not in known]
        require(not missing, f"Special tokens must be in the vocabulary; missing: {', '.join(missing)}.")
        self.specials = {role: known[token] for role, token in self.names.items()}
        require(
            "eos" in self.specials,
            f"The vocabulary needs a token that ends a document; it has none of {', '.join(_ROLES['eos'])}.",
        )

    def __len__(self) -> int:
        """Return the number of entries of the vocabulary."""
        return self.core.get_vocab_size()

    @property
    def eos(self) -> int:
        return self.specials["eos"]

    @property
    def dtype(self) -> str:
        """The smallest integer type that holds every id."""
        return "uint16" if len(self) <= 1 << 16 else "uint32"

    @property
    def special_ids(self) -> np.ndarray:
        """The ids of all special tokens."""
        added = (number for number, token in self.core.get_added_tokens_decoder().items() if token.special)
        return np.unique(np.fromiter([*added, *self.specials.values()], dtype=np.int64))

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of each text, without special tokens; int64."""
        return self.encode_texts(self.core, texts)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids; special tokens are written out."""
        return self.core.decode([int(number) for number in ids], skip_special_tokens=False)

    def decode_each(self) -> list[str]:
        """Return the text of every entry of the vocabulary, decoded alone."""
        return self.core.decode_batch([[number] for number in range(len(self))], skip_special_tokens=False)

    def fingerprint(self) -> str:
        """Return a hash of everything that encoding depends on."""
        return sha256(self.core.to_str().encode() + repr(sorted(self.specials.items())).encode()).hexdigest()

    def with_specials(self, *roles: str) -> "Tokenizer":
        """Return this tokeniser with the special tokens of these roles appended, if missing."""
        missing = {role: _ROLES[role][0] for role in roles if role not in self.specials}
        if not missing:
            return self
        core = Core.from_str(self.core.to_str())
        core.add_special_tokens(list(missing.values()))
        return Tokenizer(core, self.names | missing, self.encode_texts)

    def save(self, folder: Path | str) -> None:
        """Write it into a model's folder, where ``AutoTokenizer.from_pretrained`` finds it."""
        from transformers import PreTrainedTokenizerFast

        roles = {f"{role}_token": token for role, token in self.names.items()}
        PreTrainedTokenizerFast(tokenizer_object=self.core, **roles).save_pretrained(str(folder))


def _find_roles(core: Core) -> dict[str, str]:
    """Return the special tokens of a vocabulary by role, recognised by their usual names."""
    known = core.get_vocab(with_added_tokens=True)
    tokens = {role: next((name for name in names if name in known), None) for role, names in _ROLES.items()}
    return {role: name for role, name in tokens.items() if name is not None}


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
