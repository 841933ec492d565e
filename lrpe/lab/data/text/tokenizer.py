"""Text to token ids and back: one interface for bytes, words and byte-level BPE."""

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
