"""What each extra of lrpe needs, and which of it is not installed: read from the metadata of installed packages."""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).parents[3]  # the folder of pyproject.toml, if lrpe runs from a checkout
_REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:\[([^\]]*)\])?\s*([^;]*?)\s*(?:;\s*(.*))?")
_EXTRA = re.compile(r"""extra\s*==\s*["']([\w.-]+)["']""")


class Requirement(NamedTuple):
    """A package, which of its extras are needed, and the versions that will do, such as ">=5,<6"."""

    package: str
    extras: tuple[str, ...]
    versions: str


def find_lacking() -> dict[str, list[str]]:
    """Return the packages that each extra of lrpe lacks, with the versions it needs if another is installed."""
    return {extra: [_describe(need) for need in _lacking(needs)] for extra, needs in _extras("lrpe").items()}


def install_command(*extras: str) -> str:
    """Return the command that installs extras: from the checkout that runs, or else from the package index."""
    source = str(CHECKOUT) if (CHECKOUT / "pyproject.toml").exists() else "lrpe"
    return f"pip install '{source}[{','.join(extras)}]'"


def _describe(need: Requirement) -> str:
    try:
        return f"{need.package}{need.versions} (installed: {version(need.package)})"
    except PackageNotFoundError:
        return need.package


def _extras(package: str) -> dict[str, list[Requirement]]:
    """Return the requirements of a package by its extras; none if it is not installed."""
    try:
        names = metadata(package).get_all("Provides-Extra") or []
        lines = requires(package) or []
    except PackageNotFoundError:
        return _extras_of_checkout() if package == "lrpe" else {}
    extras: dict[str, list[Requirement]] = {name: [] for name in names}
    for line in lines:
        requirement, marker = _parse(line)
        only = _EXTRA.fullmatch(marker)  # a requirement of some systems only is left to pip
        if only is not None:
            extras.setdefault(only[1], []).append(requirement)
    return extras


def _extras_of_checkout() -> dict[str, list[Requirement]]:
    """Return lrpe's extras from pyproject.toml, for a checkout that is not installed."""
    file = CHECKOUT / "pyproject.toml"
    if not file.exists():
        return {}
    extras = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    return {extra: [_parse(line)[0] for line in lines] for extra, lines in extras.items()}


def _parse(line: str) -> tuple[Requirement, str]:
    """Return a line of requirements and its marker.

    >>> _parse("jsonargparse[signatures]>=4.40; extra == 'cli'")
    (Requirement(package='jsonargparse', extras=('signatures',), versions='>=4.40'), "extra == 'cli'")
    """
    match = _REQUIREMENT.fullmatch(line.strip())
    assert match is not None, line
    extras = tuple(filter(None, (extra.strip() for extra in (match[2] or "").split(","))))
    return Requirement(match[1], extras, match[3].strip("() ")), match[4] or ""


def _lacking(needs: list[Requirement], seen: frozenset[tuple[str, str]] = frozenset()) -> Iterator[Requirement]:
    """Yield what is not installed, or in another version, of requirements and of the extras that they name."""
    for need in needs:
        if need.package != "lrpe" and not _is_installed(need):
            yield need
            continue
        for extra in need.extras:
            key = (need.package, extra)
            if key not in seen:
                yield from _lacking(_extras(need.package).get(extra, []), seen | {key})


def _is_installed(need: Requirement) -> bool:
    try:
        found = version(need.package)
    except PackageNotFoundError:
        return False
    return all(_holds(found, bound) for bound in need.versions.split(",") if bound)


def _holds(found: str, bound: str) -> bool:
    """Return whether a version is within a bound, by the numbers of its release; other kinds of bounds are pip's.

    >>> _holds("5.1.0", ">=5"), _holds("6.0", "<6"), _holds("2.13.0+cpu", ">=2.6")
    (True, False, True)
    """
    operator, wanted = re.fullmatch(r"\s*([<>=!~]+)\s*(.*?)\s*", bound).groups()  # type: ignore[union-attr]
    a, b = _release(found), _release(wanted)
    return {">=": a >= b, "<": a < b, ">": a > b, "<=": a <= b}.get(operator, True)


def _release(text: str) -> list[int]:
    numbers = re.match(r"\d+(?:\.\d+)*", text)
    return [int(number) for number in numbers[0].split(".")] if numbers else []
