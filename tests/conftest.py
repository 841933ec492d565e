"""One torch thread a worker, one hypothesis profile, and a cache that is not the user's, for every test."""

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)

settings.register_profile(
    "lrpe",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is not a failing test
)
settings.load_profile("lrpe")


@pytest.fixture(autouse=True, scope="session")
def cache_of_the_tests(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LRPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
