"""What this installation has: versions, processor, engines, extras and caches; and what to do about what is missing."""

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from lrpe.errors import LrpeError
from lrpe.lab.caches import cache_folder, hub_folder, is_writable, measure_folder
from lrpe.lab.doctor.requirements import find_lacking, install_command
from lrpe.lab.stamp import describe_commit, find_cpu_model, find_installed_version
from lrpe.native.build import find_compiler

_PACKAGES = ("torch", "transformers", "triton", "fla-core")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; ``remedy`` is what to do about it, in one line."""

    name: str
    text: str
    remedy: str | None = None
    broken: bool = False  # it is there and does not work; what is not installed is not broken


@dataclass(frozen=True)
class Examination:
    """All findings, by section."""

    sections: dict[str, list[Finding]]

    @property
    def findings(self) -> list[Finding]:
        return [finding for findings in self.sections.values() for finding in findings]

    @property
    def sound(self) -> bool:
        """Return whether everything that was found works."""
        return not any(finding.broken for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sound": self.sound}

    def __str__(self) -> str:
        width = max(len(finding.name) for finding in self.findings)
        parts = [
            "\n".join([title, *(f"  {finding.name:{width}}  {_mark(finding)}" for finding in findings)])
            for title, findings in self.sections.items()
        ]
        remedies = [f"  {finding.name:{width}}  {finding.remedy}" for finding in self.findings if finding.remedy]
        if remedies:
            parts.append("\n".join(["What you can do", *remedies]))
        broken = [finding.name for finding in self.findings if finding.broken]
        parts.append(f"Broken: {', '.join(broken)}." if broken else "Everything that was found works.")
        return "\n\n".join(parts)


def _mark(finding: Finding) -> str:
    return f"BROKEN: {finding.text}" if finding.broken else finding.text


def examine() -> Examination:
    """Look at everything. What is missing is a finding, never an error."""
    sections = {
        "Versions": _versions,
        "Processor": _processor,
        "Engines": _engines,
        "Extras": _extras,
        "Caches": _caches,
    }
    return Examination({title: _collect(title, look) for title, look in sections.items()})


def _collect(title: str, look: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """Return a section; an unexpected error ends it with a finding, so that the others are still shown."""
    findings: list[Finding] = []
    try:
        findings.extend(look())
    except Exception as error:  # a diagnosis must not end at the first thing that is wrong
        findings.append(Finding(title.lower(), f"{type(error).__name__}: {error}", broken=True))
    return findings


def _versions() -> Iterator[Finding]:
    commit = describe_commit()["commit"]
    at = f", commit {commit[:12]}" if commit else ""
    yield Finding("lrpe", f"{find_installed_version('lrpe') or 'not installed, run from its folder'}{at}")
    yield Finding("Python", platform.python_version())
    for package in _PACKAGES:
        remedy = "pip install 'torch>=2.6'" if package == "torch" and not _has_torch() else None
        yield Finding(package, find_installed_version(package) or "not installed", remedy)


def _has_torch() -> bool:
    return find_spec("torch") is not None


def _processor() -> Iterator[Finding]:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("processor", f"{find_cpu_model()}, {platform.system()} {platform.machine()}")
    yield Finding("processors", f"{os.cpu_count()}, of which this process may use {allowed}")
    if not _has_torch():
        return
    import torch

    yield Finding("instructions", f"{torch.backends.cpu.get_cpu_capability()}, as torch reports them")
    yield Finding("threads", f"{torch.get_num_threads()} (torch.set_num_threads, or OMP_NUM_THREADS)")
    cuda = torch.cuda.is_available()
    yield Finding("GPU", torch.cuda.get_device_name() if cuda else "none that this torch can use")


def _engines() -> Iterator[Finding]:
    if not _has_torch():
        yield Finding("engines", "none without torch")
        return
    from lrpe.attention.engines.choice import status

    for name, state in status().items():
        yield _native(state) if name == "native" else Finding(name, state)
    yield from _sums()


def _native(state: str) -> Finding:
    """Return the native engine: a library that is there and cannot be loaded is broken, one that is not is missing."""
    from lrpe.attention.engines.library import find_library

    library = find_library()
    if state == "ready":
        return Finding("native", "ready" if library is None else f"ready, {library.name}")
    if library is None and os.environ.get("LRPE_NATIVE"):
        return Finding("native", f"{state}; LRPE_NATIVE names the folder", "unset LRPE_NATIVE")
    if library is not None:
        return Finding("native", state, "python -m lrpe.native.build", broken=True)
    if "was not built" not in state:  # there is none for this processor
        return Finding("native", state)
    compiler = "" if find_compiler() else "install a C++ compiler (apt install g++, or conda install gxx); then "
    return Finding("native", state, f"{compiler}python -m lrpe.native.build")


def _sums() -> Iterator[Finding]:
    """Compute tiny sums of each kind, compare them with the n × n specification, and say which engine computed them."""
    from lrpe.attention.engines.choice import engine_used
    from lrpe.lab.doctor.tiny_sums import TINY_SUMS

    for name, make in TINY_SUMS.items():
        try:
            call, error = make()
            ran = engine_used(call)
            reasons = "".join(f"; {engine}: {reason}" for engine, reason in ran.declined.items())
            wrong = error() > 1e-4
            text = f"computed by {ran.engine}{reasons}"
            yield Finding(name, f"{text}, but the result is wrong" if wrong else text, _by_torch(wrong), wrong)
        except Exception as error:  # one sum that fails says nothing about the next
            yield Finding(name, f"{type(error).__name__}: {error}", _by_torch(True), broken=True)


def _by_torch(wrong: bool) -> str | None:
    return "compute inside `with lrpe.engines.use('torch'):`, and report it" if wrong else None


def _extras() -> Iterator[Finding]:
    found = find_lacking()
    if not found:
        yield Finding("extras", "unknown: lrpe is not installed", "pip install lrpe")
    for extra, lacking in found.items():
        if lacking:
            yield Finding(extra, f"lacks {', '.join(lacking)}", install_command(extra))
        else:
            yield Finding(extra, "complete")


def _caches() -> Iterator[Finding]:
    yield _cache("prepared data", cache_folder, "LRPE_CACHE")
    yield _cache("hub, files", lambda: hub_folder("hub"), "HF_HOME")
    yield _cache("hub, datasets", lambda: hub_folder("datasets"), "HF_HOME")


def _cache(name: str, find: Callable[[], Any], variable: str) -> Finding:
    remedy = f"export {variable}=/a/folder/that/you/can/write"
    try:
        folder = find()
        size, count = measure_folder(folder)
        writable = is_writable(folder)
    except LrpeError as error:
        return Finding(name, str(error), remedy, broken=True)
    held = (
        f"{size / 1e6:,.1f} MB in {count:,} file{'' if count == 1 else 's'}"
        if folder.exists()
        else "empty, made when it is needed"
    )
    return Finding(
        name,
        f"{folder}: {held}, {'writable' if writable else 'not writable'}",
        None if writable else remedy,
        broken=not writable,
    )
