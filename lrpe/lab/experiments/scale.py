"""The scales of an experiment, from the paper's to a smoke test: functions from experiment to experiment."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lrpe.errors import require, unknown_name

if TYPE_CHECKING:
    from lrpe.lab.experiments.experiment import Experiment


@dataclass(frozen=True)
class Shape:
    """The changes that a scale makes to one kind of task.

    Attributes:
        model: fields of LrpeConfig.
        plan: fields of Optimization.
        training: fields of Training.
        data: options of both loaders, of the real data and of its substitute.
        real: options of the real data's loader only.
        stand_in: options of the substitute's loader only.
        task: options of the task, which replace the paper's.
        scored: the number of batches per split scored at the end; 0 means all.
    """

    model: dict[str, Any]
    plan: dict[str, Any]
    training: dict[str, Any]
    data: dict[str, Any] = field(default_factory=dict)
    real: dict[str, Any] = field(default_factory=dict)
    stand_in: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    scored: int = 0


def paper(experiment: "Experiment") -> "Experiment":
    """Keep the paper's configuration, with the departures that its column lists."""
    return replace(experiment, scale="paper")


def small(experiment: "Experiment") -> "Experiment":
    """Run in minutes on two cores, on real data if a path is given: short sequences, and 3 layers of width 128.

    Images use 3 layers of width 64, Long-Range Arena 2 of width 32 or 64, probes 2 of width 64 or 128.

    Departures:
    - Language models read bytes, on which a model of this size soon beats counting, and are scored on the first
      131,072 of a split. Masked ones have a vocabulary of 4,096 BPE tokens.
    - Model, length, batch and updates are a fraction of the paper's; AdamW, cosine, clipping at 1 and no dropout are
      the same for every row and column. Compare only the order of rows, and with care.
    """
    return _resize(experiment, "small", SMALL[_shape_of(experiment)])


def medium(experiment: "Experiment") -> "Experiment":
    """Train a language model for about 40 minutes on one core: 4 layers of width 256, 2,400 updates of 8 × 512 tokens.

    An update of ``recommended`` took 1.0 s with the native engine on one core of an AMD EPYC, and one of softmax
    attention 1.8 s. A model is scored on the first 131,072 tokens of a split.

    Departures:
    - Model, batch and updates are a fraction of the paper's; AdamW, cosine, clipping at 1 and no dropout are the same
      for every row. Perplexity is per BPE token, of a vocabulary of 4,096 that is learned from the training text.
    """
    require(
        experiment.kind == "language",
        f"scale='medium' needs a column of language models; got column={experiment.column!r}.",
    )
    return _resize(experiment, "medium", _MEDIUM)


def demo(experiment: "Experiment") -> "Experiment":
    """Run in a minute on one core: 2 layers of width 128, 400 updates of 8 × 128 bytes, scored on 131,072 bytes.

    Departures:
    - Everything but the method. At this size and with one seed, small differences mean nothing.
    """
    require(
        experiment.kind == "language",
        f"scale='demo' needs a column of language models; got column={experiment.column!r}.",
    )
    return _resize(experiment, "demo", _DEMO)


def smoke(experiment: "Experiment") -> "Experiment":
    """Run in seconds, to check that a cell trains, is scored and resumes. Its figures mean nothing.

    Departures:
    - Everything but the method and the kind of task.
    """
    return _resize(experiment, "smoke", SMOKE[_shape_of(experiment)])


Scale = Callable[["Experiment"], "Experiment"]
SCALES: dict[str, Scale] = {"paper": paper, "medium": medium, "small": small, "demo": demo, "smoke": smoke}


def find_scale(name: str) -> Scale:
    if name not in SCALES:
        raise unknown_name("scale", name, SCALES)
    return SCALES[name]


def _shape_of(experiment: "Experiment") -> str:
    """Return the key of a column's shape: one per kind of task, but one per column for Long-Range Arena and probes."""
    return experiment.column if experiment.column in SMALL else experiment.kind


def _resize(experiment: "Experiment", name: str, shape: Shape) -> "Experiment":
    from lrpe.lab.training.settings import Optimization  # this imports torch, which a scale's name does not need

    plan = Optimization(**PLAN | shape.plan)
    return replace(
        experiment,
        scale=name,
        architecture=experiment.architecture | shape.model,
        training=replace(experiment.training, **TRAINING | shape.training, optimization=plan),
        data=experiment.data.with_options(shape.data | shape.real),
        stand_in=experiment.stand_in.with_options(shape.data | shape.stand_in),
        options=shape.task,
        scored=shape.scored,
        start=experiment.start and find_scale(name)(experiment.start),
    )


PLAN = {"schedule": "cosine", "optimizer": "adamw", "betas": (0.9, 0.98), "weight_decay": 0.01, "clip": 1.0}
TRAINING = {"precision": "float32", "micro_batch": 0, "workers": 0}


def sizes(width: int, layers: int, heads: int, length: int, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 2 * width,
        "max_position_embeddings": length,
        "initializer_range": width**-0.5,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "drop_path_rate": 0.0,
    } | more


def plan(updates: int, batch: int, rate: float) -> dict[str, Any]:
    return {"updates": updates, "batch": batch, "rate": rate, "warmup": max(1, updates // 10)}


def often(updates: int, batches: int, size: int) -> dict[str, Any]:
    """Evaluate this number of batches six times per run."""
    return {"evaluate_every": max(1, updates // 6), "evaluation_batches": batches, "evaluation_batch": size}


def brief(width: int, length: int, **changes: Any) -> Shape:
    """Return a shape of two layers, trained for only 400 updates because long sequences are slow."""
    return Shape(model=sizes(width, 2, 4, length), plan=plan(400, 16, 2e-3), training=often(400, 0, 64), **changes)


def _probe(
    width: int, length: int, updates: int, rate: float, data: dict[str, Any], heads: int = 4, weight_decay: float = 0.01
) -> Shape:
    """Return a shape of two layers for a probe whose training sequences have at most ``length`` tokens."""
    return Shape(
        model=sizes(width, 2, heads, length),
        plan=plan(updates, 64, rate) | {"weight_decay": weight_decay},
        training=often(updates, 0, 128),
        data=data | {"train": 100_000, "test": 512},
    )


IMAGES = {"image_size": 8, "num_channels": 1, "patch_size": 2}
PATHS = {"difficulty": "easy"}
LISTOPS = {"min_length": 10, "max_length": 120, "max_args": 5, "max_depth": 6}

SMALL = {
    "language": Shape(
        model=sizes(128, 3, 4, 256),
        plan=plan(600, 8, 2e-3),
        training=often(600, 8, 16),
        data={"tokenizer": "bytes", "length": 256},
        scored=32,
    ),
    "masked": Shape(
        model=sizes(128, 3, 4, 128, classifier_hidden_size=128),
        plan=plan(1_000, 16, 1e-3),
        training=often(1_000, 16, 32),
        data={"tokenizer": "bpe:4096", "length": 128},
        scored=64,
    ),
    "sentences": Shape(
        model=sizes(128, 3, 4, 128, classifier_hidden_size=128),
        plan=plan(600, 16, 3e-4),
        training=often(600, 0, 64),
        task={"length": 128},
    ),
    "image": Shape(
        model=sizes(64, 3, 4, 256, **IMAGES),
        real={"size": 32},
        plan=plan(600, 64, 2e-3),
        training=often(600, 0, 256),
    ),
    "cifar10": Shape(
        model=sizes(64, 3, 4, 64, num_channels=3, image_size=32, patch_size=4),
        plan=plan(1_000, 64, 2e-3),
        training=often(1_000, 16, 128),
    ),
    "lra-text": brief(64, 1024, data={"length": 1024}),
    "lra-listops": Shape(
        model=sizes(64, 2, 4, 512),
        plan=plan(800, 32, 2e-3),
        training=often(800, 0, 128),
        stand_in=LISTOPS | {"train": 20_000, "validation": 2_000, "test": 2_000},
    ),
    "lra-retrieval": brief(64, 512, data={"length": 512}),
    "lra-pathfinder": brief(32, 1024, stand_in=PATHS | {"train": 8_000, "validation": 500, "test": 1_000}),
    "lra-image": Shape(
        model=sizes(64, 2, 4, 1024),
        plan=plan(600, 32, 2e-3),
        training=often(600, 8, 64),
        stand_in={"scale": 2},
    ),
    "parity": _probe(64, 33, 400, 1e-2, data={"length": 32}, heads=8, weight_decay=0.1),
    "s3": _probe(64, 33, 3000, 1e-2, data={"length": 32}, heads=8, weight_decay=0.1),
    "flip-flop": _probe(64, 128, 1000, 3e-3, data={"length": 64}),
    "copying": _probe(64, 64, 3000, 3e-3, data={"length": 32}),
    "fixed-offset": _probe(64, 64, 2000, 3e-3, data={"length": 64, "offset": 8}),
    "indirect-indexing": _probe(128, 36, 2500, 3e-3, data={"length": 20, "shift": 5, "alphabet": 26, "questions": 8}),
    "mqar": _probe(64, 24, 4000, 5e-3, data={"length": 24, "pairs": 4, "keys": 16}),
    "duplicate-keys": _probe(64, 15, 4000, 5e-3, data={"pairs": 3, "keys": 16}),
    "associative-recall": _probe(64, 12, 4000, 5e-3, data={"pairs": 4, "keys": 16}),
}  # fmt: skip
_MEDIUM = Shape(
    model=sizes(256, 4, 8, 512),
    plan=plan(2_400, 8, 1e-3),
    training=often(2_400, 16, 8),
    data={"tokenizer": "bpe:4096", "length": 512},
    scored=32,
)
_DEMO = Shape(
    model=sizes(128, 2, 4, 128),
    plan=plan(400, 8, 2e-3),
    training=often(400, 32, 32),
    data={"tokenizer": "bytes", "length": 128},
    scored=32,
)


def tiny(length: int, **changes: Any) -> Shape:
    """Return a shape with a few thousand parameters, trained for three updates."""
    model = sizes(16, 2, 2, length, **changes.pop("model", {}))
    return Shape(model=model, plan=plan(3, 4, 1e-3), training=often(6, 2, 8), scored=2, **changes)


def _tiny_probe(tokens: int, **data: Any) -> Shape:
    return tiny(tokens, data=data | {"train": 64, "test": 16})


SMOKE = {
    "language": tiny(32, data={"tokenizer": "bytes", "length": 32}),
    "masked": tiny(32, data={"tokenizer": "bytes", "length": 32}, model={"classifier_hidden_size": 16}),
    "sentences": tiny(32, task={"length": 32}, model={"classifier_hidden_size": 16}),
    "image": tiny(16, model=IMAGES),
    "cifar10": tiny(16, model=IMAGES),
    "lra-text": tiny(64, data={"length": 64}),
    "lra-listops": tiny(64, stand_in=LISTOPS | {"max_length": 60, "train": 64, "validation": 16, "test": 16}),
    "lra-retrieval": tiny(64, data={"length": 64}, stand_in={"train": 64, "validation": 16, "test": 16}),
    "lra-pathfinder": tiny(1024, stand_in={"train": 64, "validation": 16, "test": 16}),
    "lra-image": tiny(64),
    "parity": _tiny_probe(9, length=8),
    "s3": _tiny_probe(9, length=8),
    "flip-flop": _tiny_probe(16, length=8),
    "copying": _tiny_probe(16, length=8),
    "fixed-offset": _tiny_probe(16, length=16, offset=4),
    "indirect-indexing": _tiny_probe(12, length=8, shift=3, alphabet=16, questions=2),
    "mqar": _tiny_probe(16, length=16, pairs=4, keys=16),
    "duplicate-keys": _tiny_probe(20, pairs=4, keys=16),
    "associative-recall": _tiny_probe(12, pairs=4, keys=16),
}
