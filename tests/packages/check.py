"""Build the packages and try them: ``make dist``.

The sdist and the wheel of this platform go to dist/. The wheel is installed in an empty environment where no compiler
can be found, and must bring the native engine. Then the sdist is built there, which must give a pure wheel, say so in
one line, and compute by torch.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMOKE = Path(__file__).parent / "smoke.py"
DIST = ROOT / "dist"


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    _run([sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT)])
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    native = not wheel.name.endswith("-any.whl")
    with tempfile.TemporaryDirectory() as folder:
        place = _Environment(Path(folder))
        place.install("-c", str(ROOT / "constraints.txt"), str(wheel))
        print(f"{wheel.name}, installed without a compiler:", flush=True)
        place.python("-I", str(SMOKE), "ready" if native else "missing")
        pure = place.build_wheel(sdist)
        place.install("--force-reinstall", "--no-deps", str(pure))
        print(f"{pure.name}, built from {sdist.name} without a compiler:", flush=True)
        place.python("-I", str(SMOKE), "missing")
    print(f"Built and tried {wheel.name} and {sdist.name} in dist/.")


class _Environment:
    """An empty environment whose programs are the only ones that can be found."""

    def __init__(self, folder: Path):
        self.folder = folder
        venv.create(folder / "venv", with_pip=True)
        self.programs = folder / "venv" / "bin"
        self.variables = {name: value for name, value in os.environ.items() if name not in ("CXX", "PYTHONPATH")}
        self.variables["PATH"] = str(self.programs)

    def install(self, *arguments: str) -> None:
        self.python("-m", "pip", "install", "--quiet", *arguments)

    def build_wheel(self, sdist: Path) -> Path:
        """Build a wheel from the sdist; check that it is pure and that one line says why."""
        wheels = self.folder / "wheels"
        command = ("-m", "pip", "wheel", "--verbose", "--no-deps", "--wheel-dir", str(wheels), str(sdist))
        output = self.python(*command, shown=False)
        lines = [line.strip() for line in output.splitlines() if "lrpe: no C++ compiler" in line]
        (wheel,) = wheels.glob("*.whl")
        assert wheel.name.endswith("-none-any.whl"), f"Without a compiler the wheel must be pure; got {wheel.name}."
        assert len(lines) == 1, f"One line must say that there is no compiler; got {lines}."
        print(lines[0], flush=True)
        return wheel

    def python(self, *arguments: str, shown: bool = True) -> str:
        return _run([str(self.programs / "python"), *arguments], self.variables, shown)


def _run(command: list[str], variables: dict[str, str] | None = None, shown: bool = True) -> str:
    """Run a command outside the repository, whose packages must not be found, and return what it printed."""
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(command, env=variables, cwd=elsewhere, text=True, check=False, capture_output=not shown)
    if done.returncode != 0:
        sys.exit(f"{(done.stdout or '')[-3000:]}{(done.stderr or '')[-3000:]}{' '.join(command)} failed.")
    return (done.stdout or "") + (done.stderr or "")


if __name__ == "__main__":
    main()
