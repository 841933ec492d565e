"""One small run per file of tests."""

import pytest

from lrpe.lab.cli import main


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def trained(runs):
    assert main(["train", "stdlib", "--method", "type2", "--scale", "smoke", "--runs", str(runs)]) == 0
    return runs / "stdlib" / "smoke-fair" / "type2-seed0"
