"""Small texts as sources, and a small vocabulary in GPT-2's two files."""

import json

from lrpe.lab.data.text.sources import Document, Source
from lrpe.lab.data.text.text_dataset import text_dataset
from lrpe.lab.data.text.tokenizer import byte_characters

TEXTS = {
    "train": ["one two three\nfour five\n", "six", "", "seven eight nine ten\n\neleven\n", "twelve  thirteen\n" * 3],
    "validation": ["one five nine\n", "thirteen twelve eleven ten nine\neight\n", "seven"],
    "test": ["two four six\n"],
}


def source(texts=TEXTS, name="small"):
    documents = [Document(split, text) for split, them in texts.items() for text in them]
    return Source(name, {"documents": [list(document) for document in documents]}, lambda: iter(documents))


def dataset(texts=TEXTS, tokenizer="bytes", **options):
    return text_dataset(source(texts), tokenizer, **options)


def write_gpt2(folder, vocabulary="encoder.json", merges="vocab.bpe"):
    """The 256 bytes, one merge ("t" and "h"), and the end of a text."""
    entries = [*byte_characters(), "th", "<|endoftext|>"]
    (folder / vocabulary).write_text(json.dumps({token: number for number, token in enumerate(entries)}))
    (folder / merges).write_text("#version: 0.2\nt h\n")
    return folder
