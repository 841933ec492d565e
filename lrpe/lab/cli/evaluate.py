"""``lrpe evaluate``: score a trained run again."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar

from lrpe.lab.cli.train import show
from lrpe.lab.cli.words import one
from lrpe.schema import Range


@dataclass(frozen=True)
class Evaluate:
    """Score the best checkpoint of a run on every split except the training split.

    Attributes:
        folder: folder of the run.
        batches: number of batches per split; all if 0, as in the run's own scoring if not given.
        json: print JSON instead of text.
    """

    needs: ClassVar[tuple[str, ...]] = ("train",)
    folder: list[Path] = field(default_factory=list, metadata={"words": "RUN"})
    batches: Annotated[int, Range(0)] | None = None
    json: bool = False

    def run(self) -> int:
        from lrpe.lab.experiments.config_file import read_experiment
        from lrpe.lab.experiments.run import score
        from lrpe.lab.training.processes import process_group, rank

        folder = one(self.folder, "evaluate", "run")
        experiment = read_experiment(folder)
        if self.batches is not None:
            experiment = replace(experiment, scored=self.batches)
        with process_group(experiment.training.timeout) as device:
            found = score(experiment, folder, device)
            if rank() == 0:
                print(json.dumps(found, indent=2)) if self.json else show(found)
        return 0
