"""Without transformers the packages that need it say so in one sentence."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

WITHOUT = """
import sys
for name in ("transformers", "safetensors"):
    sys.modules[name] = None
from importlib import import_module
import lrpe
for name in ("lrpe.models", "lrpe.adapt", "lrpe.models.saved"):
    try:
        import_module(name)
    except lrpe.LrpeError as error:
        print(error)
"""


def test_a_missing_extra_is_named_with_a_command_that_installs_it():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    errors = done.stdout.splitlines()
    for package, error in zip(("lrpe.models", "lrpe.adapt", "lrpe.models"), errors, strict=True):
        assert error.startswith(f"{package} needs safetensors, transformers, which are not installed")
        assert "pip install 'lrpe[models]'" in error
        assert "pip install '.[models]'" in error
