"""Text to token ids and back: one small face for bytes, words and byte-level BPE."""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as Core

from lrpe.errors import require

_ROLES = {
    "bos": ("<s>", "<bos>", "[CLS]"),
    "pad": ("<pad>", "[PAD]"),
    "eos": ("</s>", "<eos>", "<|endoftext|>", "[SEP]"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
}  # what special tokens are called; the first is our own name

_Encode = Callable[[Core, Sequence[str]], list[np.ndarray]]


def encode_by_core(core: Core, texts: Sequence[str]) -> list[np.ndarray]:
    """The ids of each text, by the threads of ``tokenizers``."""
    return [np.array(found.ids, dtype=np.int64) for found in core.encode_batch_fast(texts, add_special_tokens=False)]


class Tokenizer:
    """A tokeniser of Hugging Face's ``tokenizers`` (``core``), and which of its tokens play which role.

    ``specials`` are the ids of bos, pad, eos, unk and mask, of those that there are; each document ends with eos. What
    looks like a special token in a text is text.
    """

    def __init__(self, core: Core, names: dict[str, str] | None = None, encode: _Encode = encode_by_core):
        core.no_truncation()
        core.no_padding()
        core.encode_special_tokens = True
        self.core, self.encode_texts = core, encode
        self.names = _find_roles(core) if names is None else names
        known = core.get_vocab(with_added_tokens=True)
        missing = [token for token in self.names.values() if token not in known]
        require(not missing, f"A special token is one of the vocabulary; {', '.join(missing)} is not.")
        self.specials = {role: known[token] for role, token in self.names.items()}
        require(
            "eos" in self.specials,
            f"A document ends with a token of its own; the vocabulary has none of {', '.join(_ROLES['eos'])}.",
        )

    def __len__(self) -> int:
        """Entries of the vocabulary."""
        return self.core.get_vocab_size()

    @property
    def eos(self) -> int:
        return self.specials["eos"]

    @property
    def dtype(self) -> str:
        """The smallest type that holds every id."""
        return "uint16" if len(self) <= 1 << 16 else "uint32"

    @property
    def special_ids(self) -> np.ndarray:
        """The ids that stand for no text."""
        added = (number for number, token in self.core.get_added_tokens_decoder().items() if token.special)
        return np.unique(np.fromiter([*added, *self.specials.values()], dtype=np.int64))

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, without special tokens; int64."""
        return self.encode_texts(self.core, texts)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids; special tokens are written out."""
        return self.core.decode([int(number) for number in ids], skip_special_tokens=False)

    def decode_each(self) -> list[str]:
        """The text of every entry of the vocabulary by itself."""
        return self.core.decode_batch([[number] for number in range(len(self))], skip_special_tokens=False)

    def fingerprint(self) -> str:
        """A hash of all that encoding depends on."""
        return sha256(self.core.to_str().encode() + repr(sorted(self.specials.items())).encode()).hexdigest()

    def with_specials(self, *roles: str) -> "Tokenizer":
        """This tokeniser with the special tokens of these roles added at its end, where it lacks them."""
        missing = {role: _ROLES[role][0] for role in roles if role not in self.specials}
        if not missing:
            return self
        core = Core.from_str(self.core.to_str())
        core.add_special_tokens(list(missing.values()))
        return Tokenizer(core, self.names | missing, self.encode_texts)

    def save(self, folder: Path | str) -> None:
        """Write it beside a model, where ``AutoTokenizer.from_pretrained`` finds it."""
        from transformers import PreTrainedTokenizerFast

        roles = {f"{role}_token": token for role, token in self.names.items()}
        PreTrainedTokenizerFast(tokenizer_object=self.core, **roles).save_pretrained(str(folder))


def _find_roles(core: Core) -> dict[str, str]:
    """The special tokens of a vocabulary by their usual names."""
    known = core.get_vocab(with_added_tokens=True)
    found = {role: next((name for name in names if name in known), None) for role, names in _ROLES.items()}
    return {role: name for role, name in found.items() if name is not None}
