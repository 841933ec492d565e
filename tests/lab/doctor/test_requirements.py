from importlib.metadata import PackageNotFoundError

import pytest

from lrpe.lab.doctor import requirements

INSTALLED = {"transformers": "4.57.1", "jsonargparse": "4.40.0"}
SIGNATURES = ['docstring-parser>=0.17; extra == "signatures"', 'x; sys_platform == "win32" and extra == "signatures"']


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """An environment in which lrpe itself is not installed, and its extras are those of pyproject.toml."""

    def find(table):
        def of(package):
            if package not in table:
                raise PackageNotFoundError(package)
            return table[package]

        return of

    class Metadata:
        def get_all(self, _):
            return ["signatures"]

    monkeypatch.setattr(requirements, "version", find(INSTALLED))
    monkeypatch.setattr(requirements, "metadata", find({"jsonargparse": Metadata()}))
    monkeypatch.setattr(requirements, "requires", find({"jsonargparse": SIGNATURES}))


def test_a_version_out_of_bounds_and_the_extra_of_a_package_are_lacking_too():
    lacking = requirements.find_lacking()
    assert lacking["models"] == ["transformers>=5,<6 (installed: 4.57.1)", "safetensors"]
    assert lacking["cli"] == ["docstring-parser"]


def test_an_extra_that_names_others_lacks_what_they_lack():
    lacking = requirements.find_lacking()
    assert set(lacking["models"]) | set(lacking["data"]) < set(lacking["train"])
