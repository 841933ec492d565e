"""The settings of a training run, apart from its task and model."""

from dataclasses import dataclass, field
from typing import Literal

from lrpe.errors import require
from lrpe.lab.training.optimization import Optimization
from lrpe.lab.training.precision import PrecisionKind
from lrpe.lab.training.processes import TIMEOUT


@dataclass(frozen=True)
class Training:
    """Settings of a training run, apart from its task and model.

    Attributes:
        optimization: the optimiser and its schedule.
        micro_batch: samples per process and step, with gradients accumulated; 0 takes a process's whole share at once.
        evaluate_every: updates between evaluations, each followed by a checkpoint; the last update is always evaluated.
        save_every: updates between further checkpoints; 0 saves only after evaluations.
        evaluation_batch: samples per process and step in evaluation; 0 uses the size of training.
        evaluation_batches: how many batches of the validation split are evaluated, over all processes, each of
            ``evaluation_batch`` samples (of the training batch if that is 0); 0 evaluates the whole split.
        precision: the number format of the forward pass.
        seed: determines the weights, the order of the data, and dropout.
        workers: how many processes load data.
        compile: whether to compile the model with torch.compile.
        checkpointing: whether to recompute activations in the backward pass instead of keeping them.
        parallel: whether each process keeps the whole model (ddp) or a shard of it (fsdp).
        wandb: the Weights & Biases project to log to, if any.
        timeout: seconds to wait for a process that does not answer before the run ends.
    """

    optimization: Optimization = field(default_factory=Optimization)
    micro_batch: int = 0
    evaluate_every: int = 500
    save_every: int = 0
    evaluation_batch: int = 0
    evaluation_batches: int = 0
    precision: PrecisionKind = "float32"
    seed: int = 0
    workers: int = 0
    compile: bool = False
    checkpointing: bool = False
    parallel: Literal["ddp", "fsdp"] = "ddp"
    wandb: str | None = None
    timeout: float = TIMEOUT

    def __post_init__(self) -> None:
        require(self.evaluate_every >= 1, f"evaluate_every must be at least 1; got {self.evaluate_every}.")
        require(self.seed >= 0, f"seed must be at least 0; got seed={self.seed}.")
        require(1 <= self.timeout <= 10**6, f"timeout must be from 1 to 10^6 seconds; got timeout={self.timeout}.")
        for name in ("micro_batch", "save_every", "evaluation_batch", "evaluation_batches", "workers"):
            require(getattr(self, name) >= 0, f"{name} must be at least 0; got {name}={getattr(self, name)}.")
