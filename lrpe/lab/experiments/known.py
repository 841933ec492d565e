"""Check names of tables, columns and rows without importing their definitions, which takes seconds."""

from lrpe.errors import unknown_name
from lrpe.lab.experiments import paper
from lrpe.lab.experiments.methods import METHODS, find_method, find_setting
from lrpe.lab.experiments.scale import find_scale

TABLES = ("lm", "glue", "imagenet", "lra", "basis", "speed", "normalizer", "length", "probes")
COLUMNS = (
    "wikitext103", "books", "wikitext2", "stdlib", "wikibook", "glue-mnli", "glue-qnli", "glue-qqp", "glue-rte",
    "glue-sst2", "glue-mrpc", "glue-cola", "glue-stsb", "imagenet", "cifar10", "lra-text", "lra-listops",
    "lra-retrieval", "lra-pathfinder", "lra-image", "parity", "s3", "flip-flop", "copying", "fixed-offset",
    "indirect-indexing", "mqar", "duplicate-keys", "associative-recall",
)  # fmt: skip


def check_table(name: str) -> None:
    if name not in TABLES:
        raise unknown_name("table", name, TABLES)


def check_column(name: str) -> None:
    if name not in COLUMNS:
        raise unknown_name("column", name, COLUMNS)


def check_row(name: str) -> None:
    """Check a row: a method, a scaled one (rope+yarn), a product (fourier*unitary) or a P of the table basis."""
    method = name.partition("+")[0]
    if method not in METHODS and method not in paper.BASIS:
        find_method(method)


check_method, check_setting, check_scale = find_method, find_setting, find_scale
