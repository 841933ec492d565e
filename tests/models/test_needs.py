"""Without transformers the packages that need it say so in one sentence."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

WITHOUT = """
import sys
for name in ("transformers", "safetensors"):
    sys.modules[name] = None
import lrpe
try:
    import {package}
except lrpe.LrpeError as error:
    print(error)
"""


@pytest.mark.parametrize("package", ["lrpe.models", "lrpe.adapt", "lrpe.models.saved"])
def test_a_missing_extra_is_named_with_a_command_that_installs_it(package):
    command = [sys.executable, "-c", WITHOUT.format(package=package)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    named = package.removesuffix(".saved")
    assert done.stdout.startswith(f"{named} needs safetensors, transformers, which are not installed")
    assert "pip install 'lrpe[models]'" in done.stdout
    assert "pip install '.[models]'" in done.stdout
