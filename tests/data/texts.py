"""Small texts as sources, tokenised into a cache of the test's own."""

from lrpe.data.source import Document, Source
from lrpe.data.text_dataset import text_dataset

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
