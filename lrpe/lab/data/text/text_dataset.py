"""A source of documents, a tokeniser and a length: a dataset for language models."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from lrpe.errors import require, unknown_name
from lrpe.lab.data.cache import content_hash, digest, prepared
from lrpe.lab.data.dataset import Dataset, Sample
from lrpe.lab.data.entry import Entry
from lrpe.lab.data.text.choose_tokenizer import choose_tokenizer
from lrpe.lab.data.text.source import Source
from lrpe.lab.data.text.stream import read_streams
from lrpe.lab.data.text.tokenise import write_streams
from lrpe.lab.data.text.tokenizer import Tokenizer
from lrpe.lab.data.text.windows import Windows
from lrpe.typed import Count, read_json

VERSION = 1  # of what is written

text_entry = partial(Entry, kind="text")


@dataclass(frozen=True, kw_only=True)
class TextDataset(Dataset):
    """A dataset whose splits are ``Windows`` of what this tokeniser made of its documents."""

    splits: Mapping[str, Windows]
    tokenizer: Tokenizer

    def windows(self, split: str) -> Windows:
        if split not in self.splits:
            raise unknown_name(f"split of {self.name}", split, self.splits)
        return self.splits[split]


def text_dataset(
    source: Source, tokenizer: str | Tokenizer = "bpe:8192", length: Count = 512, packed: bool = False
) -> TextDataset:
    """Tokenise a source, on the first call, and cut it into windows of ``length`` tokens.

    ``tokenizer`` is one, or what ``choose_tokenizer`` takes: "bytes", "words", "bpe:8192", a path, "hub:NAME".
    """
    chosen = choose_tokenizer(tokenizer, source)
    recipe = {"version": VERSION, "source": source.identity, "tokenizer": chosen.fingerprint()}
    folder = prepared(source.name, recipe, partial(write_streams, source=source, tokenizer=chosen))
    streams = read_streams(folder, chosen)
    require("train" in streams, f"{source.name} has no document with text in it that is for training.")
    splits = {name: Windows(stream, length, packed=packed) for name, stream in streams.items()}
    facts = {
        "splits": read_json(folder / "facts.json", dict),
        "vocabulary": len(chosen),
        "tokenizer": chosen.fingerprint(),
        "sources": digest(source.identity),
        "content": content_hash(folder),
    }
    return TextDataset(name=source.name, splits=splits, facts=facts, show=partial(show, chosen), tokenizer=chosen)


def show(tokenizer: Tokenizer, sample: Sample) -> str:
    return repr(tokenizer.decode(sample["input_ids"]))
