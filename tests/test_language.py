"""Prose is plain English: idioms that read like a translation occur nowhere in the library, its docs or README."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
IDIOMS = {
    "says what something is, not what it stands for": r"\bstands?\b(?!-in|-ins|ard| in for)",
    "gives a number or says 'several'": r"\bso many\b",
    "says resumes or continues": r"\bgo(es)? on\b",
    "says works for, or is enough for": r"\bserves?\b",
    "does not personify": r"\bspeaks? of\b|\bfares?\b|\b(is|are) told\b",
    "names what is meant": r"\bwhatever\b|\bwhoever\b|\bthose that\b|\bthe like\b",
    "says per": r"\b(one|two|seconds|bytes|number|token|tokens) an? (head|layer|update|token|byte|sample|row)\b",
}
FILES = [
    path
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/tutorials/*.md", "docs/api/*.md", "lrpe/**/*.py")
    for path in sorted(ROOT.glob(pattern))
] + [path for ending in ("js", "html") for path in sorted(ROOT.glob(f"lrpe/**/*.{ending}"))]


@pytest.mark.parametrize("rule", IDIOMS)
def test_prose(rule):
    pattern = re.compile(IDIOMS[rule], re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, f"Plain English {rule}:\n" + "\n".join(found)


def test_an_idiom_is_found():
    assert re.search(IDIOMS["says per"], "perplexity is one number a head")
    assert re.search(IDIOMS["says what something is, not what it stands for"], "what it stands for")
    assert not re.search(IDIOMS["says what something is, not what it stands for"], "a stand-in")
