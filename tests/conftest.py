"""Every test has one torch thread, one hypothesis profile and its own cache; ``--fast`` picks a few."""

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


def pytest_addoption(parser):
    parser.addoption("--fast", action="store_true", help="run one case of each test, and none that is marked slow")


def pytest_xdist_auto_num_workers():
    """One worker more than processors: a fifth of the time, tests wait for processes and networks."""
    return 1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def pytest_collection_modifyitems(config, items):
    """Keep the first case of each parametrised test: one test of every law."""
    if config.getoption("--fast"):
        first = {item.nodeid.partition("[")[0]: item for item in reversed(items) if not item.get_closest_marker("slow")}
        kept = set(first.values())
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


@pytest.fixture(autouse=True, scope="session")
def cache_of_the_tests(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LRPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def own_registries():
    """Forget after the test what it registered, and the plug-ins that it ran."""
    from lrpe import plugins
    from lrpe.registry import Registry

    entries, loaded = [(registry, dict(registry)) for registry in Registry.every], dict(plugins._LOADED)
    yield
    for registry, before in entries:
        registry.clear()
        registry.update(before)
    plugins._LOADED.clear()
    plugins._LOADED.update(loaded)
