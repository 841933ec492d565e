"""``lrpe export``: write a trained model to a folder that transformers loads."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from lrpe.errors import LrpeError
from lrpe.lab.cli.words import one


@dataclass(frozen=True)
class Export:
    """Write a model to a folder that transformers loads.

    RUN is a model's folder (config.json and safetensors) or a run's, whose best checkpoint, or else last, is exported.

    Attributes:
        source: folder of the model or the run.
        to: folder to create; required.
        remote_code: include our code, for users who have transformers but not lrpe.
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
            raise LrpeError("lrpe export needs --to, the folder to create: lrpe export RUN --to DIR.")
        # a folder name that is not valid Unicode cannot be written in its README.md
        with quietly(), naming_failure(self.to, UnicodeEncodeError):
            folder = export(source, self.to, self.remote_code)
        print(f"{folder}: {', '.join(sorted(file.name for file in folder.iterdir() if file.suffix != '.py'))}")
        print("Its README.md says how to load it.")
        return 0
