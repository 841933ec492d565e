"""The numbers printed in the paper's tables."""

from collections.abc import Mapping

LANGUAGE = {  # perplexity: WikiText-103 validation and test, Books validation and test
    "base": (33.94, 33.74, 9.12, 8.78),
    "rope": (33.40, 33.13, 8.98, 8.65),
    "spe": (43.50, 41.91, 11.91, 10.85),
    "per": (32.86, 32.53, 8.53, 8.20),
    "type1": (31.90, 31.60, 8.52, 8.19),
    "type2": (31.95, 31.71, 8.46, 8.14),
    "type3": (33.90, 33.95, 8.69, 8.43),
}
GLUE = {  # bits, then MNLI matched and mismatched, QNLI, QQP, RTE, SST-2, MRPC, CoLA, STS-B
    "base": (5.35, 76.10, 76.39, 85.47, 88.44, 53.43, 89.33, 70.59, None, 48.08),
    "rope": (5.17, 76.53, 77.08, 82.77, 83.30, 55.96, 90.48, 69.36, 38.84, 49.28),
    "spe": (6.07, 67.92, 68.12, 73.70, 87.27, 53.43, 84.75, 70.34, None, 17.88),
    "per": (5.32, 77.30, 77.37, 84.09, 89.03, 55.96, 90.25, 71.08, 29.04, 68.10),
    "type1": (5.18, 79.18, 78.76, 87.75, 89.55, 55.96, 90.48, 73.04, 48.27, 82.09),
    "type2": (5.12, 80.28, 80.68, 87.17, 89.68, 59.21, 91.97, 73.77, 49.34, 79.28),
    "type3": (5.28, 77.34, 77.55, 86.22, 88.99, 58.48, 90.48, 71.08, 36.67, 74.66),
}
IMAGENET = {  # accuracy, and millions of parameters
    "base": (77.88, 22.04),
    "rope": (78.52, 22.04),
    "per": (77.99, 22.04),
    "type1": (78.58, 22.05),
    "type2": (78.78, 22.05),
    "type3": (77.74, 22.05),
}
ARENA = {  # accuracy: Text, ListOps, Retrieval, Pathfinder, Image, and their average
    "base": (64.81, 39.17, 84.71, 71.61, 41.21, 60.30),
    "rope": (66.53, 40.57, 78.75, 72.68, 62.50, 64.59),
    "per": (65.50, 39.17, 83.40, 69.55, 42.03, 60.86),
    "type1": (66.80, 39.84, 82.13, 73.79, 63.43, 65.47),
    "type2": (66.52, 39.79, 81.55, 73.46, 62.35, 65.03),
    "type3": (64.94, 39.56, 83.86, 70.78, 45.15, 61.54),
}
BASIS = {  # WikiText-103 validation perplexity by P: Unitary, Orthogonal, Permutation, and their average
    "householder": (31.90, 31.95, 33.90, 32.58),
    "identity": (32.04, 31.86, 34.53, 32.80),
    "odd-even": (32.09, 31.59, 34.16, 32.61),
}
SPEED = {  # training steps of the bidirectional language model, relative to Base
    "base": (1.00,),
    "rope": (0.86,),
    "spe": (0.61,),
    "per": (0.94,),
    "type1": (0.82,),
    "type2": (0.82,),
    "type3": (0.89,),
}


def read_column(table: Mapping[str, tuple[float | None, ...]], column: int) -> dict[str, float]:
    """Return a column of a table by row, without the cells that the paper leaves blank."""
    return {row: figure for row, figures in table.items() if (figure := figures[column]) is not None}
