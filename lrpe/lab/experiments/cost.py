"""Estimate the cost of experiments before they run, and describe what a table would train."""

import inspect
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lrpe.lab.aligned import in_columns
from lrpe.lab.data.text.tokenizer import bpe_size
from lrpe.lab.experiments.build import build_config, model_class
from lrpe.lab.experiments.columns import find_column, stdlib
from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.experiments.scale import find_scale
from lrpe.lab.training.processes import local_device
from lrpe.models.configuration import LrpeConfig

_SCALES = {"cpu": "small", "cuda": "paper"}  # the scale whose model just keeps the device busy
_BYTES = 260  # including four special tokens


@dataclass(frozen=True)
class Cost:
    """The cost of training. ``flops`` counts forward and backward passes, three times the forward's."""

    parameters: int
    tokens: float
    flops: float

    def seconds(self, tflops: float) -> float:
        return self.flops / (tflops * 1e12)


def estimate(experiment: Experiment) -> Cost:
    """Estimate one run without its starting weights. No files are read: sample counts are the column's."""
    config = build_config(experiment, _find_vocabulary(experiment))
    with torch.device("meta"):
        model: Any = model_class(experiment)(config)
    length = _count_tokens(experiment, config)
    tokens = _count_samples(experiment) * length * (2 if experiment.kind == "pair" else 1)
    matrices = {id(p): p.numel() for name, p in model.named_parameters() if p.ndim >= 2 and "embed" not in name}
    head = config.vocab_size * config.hidden_size if experiment.kind in ("language", "masked", "tokens") else 0
    forward = 2 * (sum(matrices.values()) + head) + _count_attention_flops(config, length)
    return Cost(sum(p.numel() for p in model.parameters()), tokens, 3 * forward * tokens)


def _find_vocabulary(experiment: Experiment) -> dict[str, int]:
    """Return the vocabulary size in the name of the tokeniser, or a probe's; otherwise nothing: the architecture's."""
    if experiment.kind == "tokens":
        return {"vocab_size": experiment.data.load().facts["vocab_size"]}  # its samples are made when they are read
    tokenizer = str(experiment.data.options.get("tokenizer", ""))
    size = _BYTES if tokenizer == "bytes" else bpe_size(tokenizer)
    return {} if size is None else {"vocab_size": size}


def _count_attention_flops(config: LrpeConfig, length: int) -> float:
    """Return attention FLOPs per token over all layers: with the state if linear, with every token if softmax."""
    width = config.num_attention_heads * config.head_dim
    features = config.head_dim * (2 if config.layer_encoding(0).matrix == "unitary" else 1)
    layers = [config.layer_attention(k) for k in range(config.num_hidden_layers)]
    return sum(4 * width * (features if kind == "linear" else length) for kind in layers)


def _count_samples(experiment: Experiment) -> float:
    plan = experiment.training.optimization
    return plan.epochs * experiment.samples if plan.epochs else plan.updates * plan.batch


def _count_tokens(experiment: Experiment, config: LrpeConfig) -> int:
    if config.image_size is not None:
        return (config.image_size // config.patch_size) ** 2
    if experiment.kind == "tokens":  # a probe's length counts what is asked, such as pairs or letters
        return config.max_position_embeddings
    return experiment.data.options.get("length") or config.max_position_embeddings


@dataclass(frozen=True)
class Speed:
    """Speed in 10¹² operations per second, and the source of the number."""

    tflops: float
    source: str


def measure_speed(seconds: float = 1.0) -> Speed:
    """Time forward and backward passes of a language model, which training reaches, unlike a matrix product's peak."""
    device = local_device()
    experiment = find_scale(_SCALES[device.type])(stdlib("type2"))
    model: Any = model_class(experiment)(build_config(experiment, _find_vocabulary(experiment))).to(device)
    plan, length = experiment.training.optimization, experiment.data.options["length"]
    batch = min(plan.batch, 8)
    ids = torch.randint(256, (batch, length), device=device)
    flops = estimate(experiment).flops / plan.updates * batch / plan.batch  # per pass
    took = _time(lambda: model(input_ids=ids, labels=ids, use_cache=False).loss.backward(), seconds)
    layers, width = model.config.num_hidden_layers, model.config.hidden_size
    where = f"threads: {torch.get_num_threads()}" if device.type == "cpu" else torch.cuda.get_device_name(device)
    source = f"measured here ({where}) for {seconds:g} s on a language model with {layers} layers of width {width}"
    return Speed(flops / took / 1e12, source)


def _time(run: Any, seconds: float) -> float:
    """Return the seconds per run, after one warm-up run."""
    run()
    _wait()
    begun, runs = time.perf_counter(), 0
    while runs == 0 or time.perf_counter() - begun < seconds:
        run()
        _wait()
        runs += 1
    return (time.perf_counter() - begun) / runs


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def describe_time(seconds: float) -> str:
    """Return a time in the unit that a person would use.

    >>> [describe_time(seconds) for seconds in (0.2, 45, 600, 9000, 400_000)]
    ['under 1 s', '45 s', '10 min', '2.5 h', '4.6 days']
    """
    if seconds < 1:
        return "under 1 s"
    for unit, size, least in (("days", 86400, 2 * 86400), ("h", 3600, 2 * 3600), ("min", 60, 120)):
        if seconds >= least:
            return f"{seconds / size:,.2g} {unit}" if seconds / size < 10 else f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"


def describe_plan(experiments: Sequence[Experiment], speed: Speed) -> str:
    """Return a table of the runs, their time at this speed, and the notes of their columns."""
    distinct = _with_starts(experiments)
    header = ["cell", "data", "layers × width", "length", "updates", "batch", "rate", "parameters", "tokens", "FLOPs"]
    costs = {name: estimate(each) for name, each in distinct.items()}
    lines = [_describe(each, costs[name], speed) for name, each in distinct.items()]
    total = describe_time(sum(cost.seconds(speed.tflops) for cost in costs.values()))
    table = in_columns([*header, "time"], lines, left=2)
    times = f"Times are at {speed.tflops:.3g} TFLOP/s, {speed.source}."
    notes = "\n\n".join(departures(distinct.values()))
    runs = f"{len(distinct)} run{'' if len(distinct) == 1 else 's'}"
    return f"{table}\n\n{runs}, {total} in all. {times}\n\n{notes}\n"


def _with_starts(experiments: Sequence[Experiment]) -> dict[str, Experiment]:
    """Return each experiment once by name, preceded by the one whose weights it starts from."""
    distinct: dict[str, Experiment] = {}
    for experiment in experiments:
        for each in filter(None, (experiment.start, experiment)):
            distinct.setdefault(each.name, each)
    return distinct


def _describe(experiment: Experiment, cost: Cost, speed: Speed) -> list[str]:
    plan, base = experiment.training.optimization, experiment.architecture | experiment.model
    return [
        experiment.name,
        experiment.data.name,
        f"{base['num_hidden_layers']} × {base['hidden_size']}",
        str(experiment.data.options.get("length") or base.get("max_position_embeddings", "")),
        f"{plan.epochs:g} epochs" if plan.epochs else f"{plan.updates:,}",
        str(plan.batch),
        f"{plan.rate:g}",
        f"{cost.parameters / 1e6:.2f} M",
        f"{cost.tokens:.2g}",
        f"{cost.flops:.2g}",
        describe_time(cost.seconds(speed.tflops)),
    ]


def departures(experiments: Iterable[Experiment]) -> list[str]:
    """Return the notes of each column and each scale, once."""
    notes = {}
    for experiment in experiments:
        notes[experiment.column] = inspect.getdoc(find_column(experiment.column))
        notes[f"scale {experiment.scale}"] = inspect.getdoc(find_scale(experiment.scale))
    return [f"{name}: {text}" for name, text in notes.items()]
