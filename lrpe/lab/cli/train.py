"""``lrpe train``: train one cell of a table."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from lrpe.errors import LrpeError
from lrpe.lab.cli.words import one, paths
from lrpe.schema import Seed

if TYPE_CHECKING:
    from lrpe.lab.experiments.experiment import Experiment

NAMES = ("column", "method", "setting", "scale")  # the names that select an experiment


@dataclass(frozen=True)
class Train:
    """Train a method on a column; running the same command again resumes the run.

    COLUMN is wikitext103, wikitext2, books, stdlib, wikibook, imagenet, glue-TASK such as glue-cola, or lra-TASK such
    as lra-text. Any field of the experiment is an option with a dotted name: --training.optimization.rate 1e-3,
    --model.hidden_size 256. Under torchrun, all processes train one model together.

    Attributes:
        column: task and its data.
        method: row of the table: base, rope, spe, per, type1, type2, type3, cosformer, pope, hope, p-rope, retnet,
            lrpe-d, mamba3, none, softmax, softmax-decay, softmax-decay-gate-conv, softmax-gated-gate-conv, spread,
            spread-gate, spread-conv, spread-gate-conv, learned-decay, gated, gated-gate-conv, selective,
            selective-gated, selective-gate-conv, switched-gated, hybrid, hybrid-gate-conv, hybrid-gated-gate-conv,
            recommended, or any basis*matrix.
        setting: fair, absolute (fair, with absolute positions) or authors (as the paper's authors ran it).
        scale: paper, medium (40 minutes), small (minutes), demo (a minute) or smoke (seconds).
        seed: seed of weights, data and dropout.
        data: where the data are, as NAME=PATH,NAME=PATH. PATH may be hub, the Hugging Face hub, or here, the substitute
            that every machine has. DATASET:PATH reads another dataset of the same kind, such as citations:PATH for
            lra-retrieval.
        out: folder of the run; runs/COLUMN/SCALE-SETTING/METHOD-seedN if not given.
        runs: folder with all runs.
        config: YAML file of keys, such as the config.yaml of a run. They override --method, --setting, --scale and
            --seed; options with dotted names override them.
        begin_from: checkpoint, or run, whose best checkpoint, or else last, is used: a new run starts with its weights,
            a new schedule and a new optimiser. It may change any key that keeps the model's shape.
        changes: dotted keys.
    """

    needs: ClassVar[tuple[str, ...]] = ("train",)
    column: list[str] = field(default_factory=list, metadata={"words": "COLUMN"})
    method: str = "type2"
    setting: str = "fair"
    scale: str = "small"
    seed: Seed = 0
    data: str = ""
    out: Path | None = None
    runs: Path = Path("runs")
    config: Path | None = None
    begin_from: Path | None = field(default=None, metadata={"flags": ("--from",)})
    changes: dict[str, str] = field(default_factory=dict, metadata={"dotted": True})

    def run(self) -> int:
        self.check_names()
        from lrpe.lab.experiments.run import run_in
        from lrpe.lab.training.processes import process_group, rank

        experiment = self.experiment()
        folder = self.out or self.runs / experiment.name
        with process_group(experiment.training.timeout) as device:
            results = run_in(folder, experiment, self.runs, device)
            if rank() == 0:
                show(results)
                print(f"\nThe run: {folder.resolve()}")
        return 0

    def check_names(self) -> None:
        """Refuse a typo before importing torch, which takes seconds."""
        from lrpe.lab.experiments.methods import check_column, check_row, find_setting
        from lrpe.lab.experiments.scale import find_scale

        for column in self.column:
            check_column(column)
        check_row(self.method)
        find_setting(self.setting)
        find_scale(self.scale)
        paths(self.data)

    def experiment(self) -> "Experiment":
        from lrpe.lab.cli.words import read_dotted
        from lrpe.lab.experiments.build import find_checkpoint
        from lrpe.lab.experiments.experiment import merge, read_changes
        from lrpe.lab.experiments.planning import plan_experiment
        from lrpe.schema import conform

        written = {} if self.config is None else read_changes(self.config)
        if not self.column and "column" not in written:
            raise LrpeError("lrpe train needs a column, such as: lrpe train wikitext2 --method type2.")
        named = {"method": self.method, "setting": self.setting, "scale": self.scale}
        named |= {"column": one(self.column, "train", "column")} if self.column else {}
        named |= conform({key: written[key] for key in NAMES if key in written}, dict[str, str], "")
        first = {} if self.begin_from is None else {"checkpoint": asdict(find_checkpoint(self.begin_from))}
        typed = merge(first, read_dotted(self.changes))
        return plan_experiment(**named, seed=self.seed, data=paths(self.data), changes=(written, typed))


def show(results: dict[str, dict[str, float]]) -> None:
    from lrpe.lab.tasks.task import describe_metrics

    for split, metrics in results.items():
        print(f"{split}: {describe_metrics(metrics)}")
