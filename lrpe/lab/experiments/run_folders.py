"""Where runs are."""

import os
from pathlib import Path


def find_runs(folder: Path) -> list[Path]:
    """Return the folders with a config.yaml under a folder, sorted.

    A folder that vanishes meanwhile, or that cannot be read, has none: ``Path.rglob`` would end there.
    """
    return sorted(Path(place) for place, _, files in os.walk(folder) if "config.yaml" in files)
