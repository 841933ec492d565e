"""How a run is trained, beside what it learns."""

from dataclasses import dataclass, field
from typing import Literal

from lrpe.errors import require
from lrpe.lab.training.optimization import Optimization
from lrpe.lab.training.precision import PrecisionKind
from lrpe.lab.training.processes import TIMEOUT


@dataclass(frozen=True)
class Training:
    """How a run goes, beside what it learns.

    Attributes:
        optimization: the optimiser and its schedule.
        micro_batch: samples that a process takes at a time, adding up gradients; its whole share of the batch if 0.
        evaluate_every: updates between evaluations (and after the last); a checkpoint follows each.
        save_every: updates between checkpoints; as often as it is evaluated if 0.
        evaluation_batch: samples that a process takes at a time in evaluation; as in training if 0.
        evaluation_batches: at most so many times ``evaluation_batch`` samples of the validation split, over all
            processes (so many batches, if that is 0); all of it if 0.
        precision: of the forward pass.
        seed: of the weights, the order of the data, and dropout.
        workers: processes that load data.
        compile: whether the model is compiled.
        checkpointing: whether activations are computed again for the gradient instead of kept.
        parallel: whether each of several processes keeps the whole model (ddp), or a share of it (fsdp).
        wandb: the project of Weights & Biases that also gets the metrics, if any.
        timeout: seconds that processes wait for one of them that does not answer, before they end.
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
        require(self.evaluate_every >= 1, f"A run is evaluated every so many updates; got {self.evaluate_every}.")
        require(self.seed >= 0, f"A seed is 0 or more; got {self.seed}.")
        require(1 <= self.timeout <= 10**6, f"timeout is from 1 to 10^6 seconds; got timeout={self.timeout}.")
        counts = (self.micro_batch, self.save_every, self.evaluation_batch, self.evaluation_batches, self.workers)
        require(min(counts) >= 0, f"Batches, workers and save_every are 0 or more; got {self}.")
