"""What a run's environment.json says of its data and of how it is judged."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lrpe.lab.names import check_name
from lrpe.schema import conform_known
from lrpe.serialization import read_json


@dataclass(frozen=True)
class About:
    """What environment.json says beside the machine and the versions.

    Attributes:
        data: the name of the data and what is known of them, hashes among it.
        metric: the figure by which the run is judged.
        better: which way it improves.
    """

    data: dict[str, Any] = field(default_factory=dict)
    metric: str = ""
    better: Literal["lower", "higher"] = "lower"

    def __post_init__(self) -> None:
        if self.metric:
            check_name(self.metric, "metric")  # pictures are named after it


def read_about(folder: Path) -> About:
    """Return what environment.json of a run says; of a run that has none, nothing."""
    file = folder / "environment.json"
    return conform_known(read_json(file, dict[str, Any]), About) if file.exists() else About()
