"""A griffe extension: doctests in a docstring are shown as examples, as code, anywhere in it."""

import re
from typing import Any

from griffe import Extension


class Doctests(Extension):
    """Put each paragraph of doctests under the heading that Google's style has for them."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_examples(obj.docstring.value)


def as_examples(text: str) -> str:
    paragraphs = re.split(r"\n{2,}", text)
    return "\n\n".join(_indented(paragraph) if paragraph.startswith(">>>") else paragraph for paragraph in paragraphs)


def _indented(doctest: str) -> str:
    return "\n".join(["Examples:", *(f"    {line}" for line in doctest.splitlines())])
