"""``lrpe export``: a trained model as a folder that anyone can load."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from lrpe.errors import LrpeError
from lrpe.lab.cli.words import one


@dataclass(frozen=True)
class Export:
    """Write a model to a folder that transformers loads.

    RUN is a model's folder (config.json and safetensors), or a run, of which the best or else the last is taken.

    Attributes:
        source: the model's folder, or the run's.
        to: the new folder.
        remote_code: put our code beside the model, for users who have transformers and not lrpe.
    """

    needs: ClassVar[tuple[str, ...]] = ("models",)
    source: list[Path] = field(default_factory=list, metadata={"words": "RUN"})
    to: Path | None = None
    remote_code: bool = False

    def run(self) -> int:
        from lrpe.adapt.export import export
        from lrpe.atomic import naming_failure
        from lrpe.models.saved import quietly

        source = one(self.source, "export", "run")
        if self.to is None:
            raise LrpeError("An export needs a folder to write to: lrpe export RUN --to DIR.")
        # a name that is not text cannot be written in its README.md
        with quietly(), naming_failure(self.to, UnicodeEncodeError):
            folder = export(source, self.to, self.remote_code)
        print(f"{folder}: {', '.join(sorted(file.name for file in folder.iterdir() if file.suffix != '.py'))}")
        print("Its README.md says how to load it.")
        return 0
