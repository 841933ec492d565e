"""Compile the native engine with the compiler that is there: ``python lrpe/native/build.py``.

It needs no torch and no Python headers, so the build hook of the package runs it too.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = (
    *("causal.cpp", "bidirectional_forward.cpp", "bidirectional_backward.cpp"),
    *("turn.cpp", "step.cpp", "product.cpp", "convolution.cpp"),
)
_TARGETS = {  # instruction sets per processor, and the flag that asks for each
    "x86_64": {"x86-64-v3": "-march=x86-64-v3", "x86-64-v4": "-march=x86-64-v4"},
    "aarch64": {"aarch64": "-march=armv8-a"},
}
_FLAGS = (  # no -ffast-math: linking with it can flush denormals in the whole process
    *("-std=c++17", "-O3", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
)


def library_path(target: str, folder: Path | None = None) -> Path:
    """Return the path of the library for an instruction set, in LRPE_NATIVE if that is set and no folder is given."""
    return Path(folder or os.environ.get("LRPE_NATIVE") or HERE) / f"liblrpe-{target}.so"


def processor() -> str:
    """Return "x86_64", "aarch64", or the machine's own name for another processor."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def find_compiler() -> str | None:
    """Return CXX if it is set, else the first of g++, clang++ and c++ that is there."""
    asked = os.environ.get("CXX")
    names = [asked] if asked else ["g++", "clang++", "c++"]
    return next((path for name in names if (path := shutil.which(name))), None)


def build(folder: Path = HERE, extra: tuple[str, ...] = ()) -> tuple[list[Path], str]:
    """Compile one library per instruction set; return their paths, and a line for the log."""
    targets = _TARGETS.get(processor())
    if targets is None or sys.platform not in ("linux", "darwin"):
        return [], f"lrpe: no native engine for {sys.platform} on {processor()}; torch computes every sum."
    compiler = find_compiler()
    if compiler is None:
        return [], "lrpe: no C++ compiler (CXX, g++, clang++), so no native engine; torch computes every sum."
    made = [path for target, flag in targets.items() if (path := _compile(compiler, target, (flag, *extra), folder))]
    if not made:
        return [], f"lrpe: {compiler} could not compile the native engine; torch computes every sum."
    return made, f"lrpe: built the native engine for {', '.join(path.stem.removeprefix('liblrpe-') for path in made)}."


def _compile(compiler: str, target: str, flags: tuple[str, ...], folder: Path) -> Path | None:
    """Compile for one instruction set under a temporary name, then rename; None if the compiler fails."""
    path = library_path(target, folder)
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    command = [compiler, *_FLAGS, *flags, *(str(HERE / name) for name in SOURCES), "-o", str(unfinished)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        print(f"lrpe: {compiler}: {error}", file=sys.stderr)
        return None
    if done.returncode != 0:
        print(done.stderr[-2000:], file=sys.stderr)
        unfinished.unlink(missing_ok=True)
        return None
    os.replace(unfinished, path)
    return path


if __name__ == "__main__":
    print(build()[1])
