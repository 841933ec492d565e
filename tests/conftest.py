"""One torch thread a worker, and one hypothesis profile for every test."""

import os

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
