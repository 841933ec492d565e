"""Old names of modules and of public names, which work for one more version with a DeprecationWarning."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import Any

# Old module or package -> new one. What was inside a package is inside the new one, unless it has a line of its own.
MODULES = {
    "lrpe.cli.__main__": "lrpe.__main__",
    **{
        f"lrpe.{name}": f"lrpe.lab.{name}"
        for name in (
            *("data", "tasks", "training", "experiments", "benchmarks", "report", "cli"),
            *("stamp", "aligned"),
        )
    },
    **dict.fromkeys(("lrpe.names", "lrpe.options", "lrpe.lab.options"), "lrpe.schema"),
    "lrpe.arguments": "lrpe.errors",
    "lrpe.lab.engine_used": "lrpe.attention.engines.choice",
    "lrpe.orphans": "lrpe.lab.data.jobs",
    **{
        f"{package}.{old}": f"lrpe.lab.{new}"
        for package in ("lrpe", "lrpe.lab")
        for old, new in {
            "tasks.evaluate": "tasks.task",
            "tasks.masked_language_modelling": "tasks.language_modelling",
            "data.text.vocabularies": "data.text.tokenizer",
            "data.text.stream": "data.text.text_dataset",
            "benchmarks.rollback": "benchmarks.decode",
            "cli.verbs": "cli.command_line",
            "report.explorer.wishes": "report.explorer.page",
            "report.palette": "report.picture",
            "report.summary": "report.notes",
            **dict.fromkeys(("experiments.run_plugins", "experiments.run_many"), "experiments.run"),
            "experiments.known": "experiments.methods",
            "experiments.config_file": "experiments.experiment",
            "training.contexts": "training.parallel",
            "training.monitors": "training.record",
            "training.checkpoint_history": "training.checkpoint",
            "training.old_optimizer_state": "training.old_checkpoints",
            "training.old_angle_moments": "training.old_checkpoints",
        }.items()
    },
    **{
        f"lrpe.encodings.{name}": f"lrpe.theory.{name}"
        for name in ("linearizability", "laws", "definition", "canonical", "instances", "derive")
    },
    "lrpe.encodings.growth": "lrpe.theory.rank_growth",
    "lrpe.encodings.measure": "lrpe.theory.laws",
    **dict.fromkeys(("lrpe.encodings.scaling", "lrpe.encodings.old_angles"), "lrpe.encodings.angles"),
    "lrpe.encodings.householder": "lrpe.encodings.basis",
    "lrpe.encodings.alignment": "lrpe.encodings.position_matrix",
    "lrpe.encodings.registry": "lrpe.registry",
    "lrpe.replacement": "lrpe.adapt",
    **dict.fromkeys(("lrpe.models.causal_lm", "lrpe.models.masked_lm"), "lrpe.models.language_models"),
    **{
        f"lrpe.models.{name}_classification": "lrpe.models.classification"
        for name in ("sequence", "pair", "token", "image")
    },
    **dict.fromkeys(("lrpe.models.feed_forward", "lrpe.models.norm"), "lrpe.models.block"),
    **dict.fromkeys(("lrpe.models.embedding", "lrpe.models.parts"), "lrpe.models.inputs"),
    "lrpe.models.loading": "lrpe.models.weights",
    "lrpe.adapt.encoded": "lrpe.adapt.rotary",
    "lrpe.adapt.record": "lrpe.adapt.saving",
    "lrpe.adapt.stand_in": "lrpe.adapt.attention",
    **{
        f"lrpe.attention.{old}": f"lrpe.attention.{new}"
        for old, new in {
            "halo": "convolution",
            "row": "inputs",
            **dict.fromkeys(("projection", "output_gate"), "layer"),
            **dict.fromkeys(("members", "summation"), "choices"),
            "engines.native_product": "engines.library",
            "engines.native_step": "engines.native",
            "engines.fla_sum": "engines.fla",
            **dict.fromkeys(("engines.unencoded", "engines.one_token"), "description"),
            "sums.naive": "sums.problem",
            "sums.recurrent": "engines.torch_engine",
            **dict.fromkeys(("sums.packed", "sums.parts"), "sums.borders"),
        }.items()
    },
}

# Names that were in lrpe itself -> the package that offers them now.
NAMES = {
    **dict.fromkeys(("OddEven", "Fourier", "Cosine", "Dense", "LearnedOrthogonal"), "lrpe.encodings"),
    **dict.fromkeys(("Interpolation", "NTKAware", "YaRN"), "lrpe.encodings"),
    **dict.fromkeys(("PositionalEncoding", "StochasticEncoding"), "lrpe.encodings"),
    **dict.fromkeys(("SinusoidalPositions", "LearnedPositions"), "lrpe.encodings"),
    **dict.fromkeys(("Report", "Linearizability", "Primitive"), "lrpe.theory"),
    **dict.fromkeys(("Additive", "T5Buckets", "RPR", "DeBERTa", "CosFormer", "FamilyForm"), "lrpe.theory"),
    **dict.fromkeys(("Normalizer", "ClampedDelta", "KeyValueState"), "lrpe.attention"),
}


def find_moved_name(name: str) -> Any:
    """Return what was ``lrpe.name``, and warn.

    Raises:
        AttributeError: ``lrpe`` never had that name.
    """
    if name not in NAMES:
        raise AttributeError(f"module 'lrpe' has no attribute {name!r}")
    _warn(f"lrpe.{name}", f"{NAMES[name]}.{name}", stacklevel=4)  # past this, lrpe.__getattr__ and the warning itself
    return getattr(import_module(NAMES[name]), name)


def _find_moved_module(name: str) -> str | None:
    """Return the new name of a module, or None if it has not moved."""
    for length in range(name.count(".") + 1, 1, -1):
        parts = name.split(".")
        if new := MODULES.get(".".join(parts[:length])):
            return ".".join([new, *parts[length:]])
    return None


def install() -> None:
    """Make ``import`` find moved modules under their old names."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        # First, because the path of an alias is that of the new package, where the ordinary finder would
        # load its modules a second time under their old names.
        sys.meta_path.insert(0, _Finder())


def _warn(old: str, new: str, stacklevel: int = 3) -> None:
    message = f"{old} is now {new}; the old name will be removed in version 0.3."
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        new = _find_moved_module(fullname) if fullname.startswith("lrpe.") else None
        spec = find_spec(new) if new else None
        if new is None or spec is None:
            return None
        _warn(fullname, new)
        is_package = spec.submodule_search_locations is not None
        return ModuleSpec(fullname, _Alias(new), origin=spec.origin, is_package=is_package)


class _Alias(InspectLoader):
    """Loads the new module under the old name, so that each class exists once."""

    def __init__(self, new: str):
        self.new = new

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self.new)
        self.own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.own_spec  # the import system has just put that of the old name here

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code that ``python -m`` with the old name runs."""
        spec = find_spec(self.new)
        return spec.loader.get_code(self.new) if spec and isinstance(spec.loader, InspectLoader) else None

    def get_source(self, fullname: str) -> str | None:
        spec = find_spec(self.new)
        return spec.loader.get_source(self.new) if spec and isinstance(spec.loader, InspectLoader) else None
