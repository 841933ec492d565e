"""The origin of a measurement: commit, machine, versions and date."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent


def stamp(*packages: str) -> dict[str, Any]:
    """Return date, commit, machine and versions; a package that is not installed has version None."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        **describe_commit(),
        "machine": f"{find_cpu_model()}, {os.cpu_count()} processors",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {package: find_installed_version(package) for package in ("lrpe", "torch", *packages)},
    }


def describe_commit() -> dict[str, Any]:
    """Return the commit of this code and whether it was changed since; None for both outside a repository."""
    if not _git("ls-files", Path(__file__).name):
        return {"commit": None, "dirty": None}
    return {"commit": _git("rev-parse", "HEAD"), "dirty": bool(_git("status", "--porcelain"))}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=_FOLDER, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def find_cpu_model() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def find_installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def describe(mark: dict[str, Any]) -> str:
    """Return the stamp as three lines of text."""
    versions = ", ".join(f"{name} {number or 'missing'}" for name, number in mark["versions"].items())
    changed = {None: "", True: ", with changes", False: ""}[mark["dirty"]]
    return "\n".join(
        [
            f"{mark['date']}, commit {(mark['commit'] or 'unknown')[:12]}{changed}",
            f"{mark['machine']}, {mark['system']}",
            f"Python {mark['python']}, {versions}",
        ]
    )
