"""Passages of a source file, as bytes."""

from lrpe.lab.data.embedded import Module


def passages(module: Module, length: int) -> list[bytes]:
    """The file cut into passages of ``length`` bytes; a last one of less than half of that is left out."""
    content = module.text.encode()
    cut = [content[start : start + length] for start in range(0, len(content), length)]
    return [passage for passage in cut if 2 * len(passage) >= length]
