"""Run the contract of engines on a native engine compiled with AddressSanitizer and UBSan: ``make native-check``.

A read or write outside a tensor, or undefined arithmetic, ends the run with the sanitiser's report.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from lrpe.native.build import build, find_compiler

ROOT = Path(__file__).parents[2]
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")


def main() -> int:
    compiler = find_compiler()
    runtime = compiler and subprocess.check_output([compiler, "-print-file-name=libasan.so"], text=True).strip()
    if not runtime or not Path(runtime).is_absolute():
        print("lrpe: native-check needs a C++ compiler with AddressSanitizer; skipped.")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        made, line = build(Path(folder), SANITIZE)
        print(line)
        if not made:
            return 1
        environment = os.environ | {
            "LRPE_NATIVE": folder,
            "LD_PRELOAD": runtime,  # Python itself is not compiled with the sanitiser
            "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps memory until it ends
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        }
        tests = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "tests/attention/engines",
            "--ignore=tests/attention/engines/test_interpreter.py",  # other kernels, and slow
            "tests/attention/test_projection.py",
        ]
        for capability in _capabilities(made):
            environment["ATEN_CPU_CAPABILITY"] = capability
            if code := subprocess.run(tests, cwd=ROOT, env=environment, check=False).returncode:
                return code
    return 0


def _capabilities(made: list[Path]) -> list[str]:
    """Return torch's names of the instruction sets to run; a processor without AVX-512 runs AVX2 twice."""
    return ["avx2", "avx512"] if any("v4" in path.name for path in made) else ["default"]


if __name__ == "__main__":
    sys.exit(main())
