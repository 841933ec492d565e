"""The plug-ins of a run: their sources beside the run, as a record that nothing runs unless the user names it."""

import sys
from pathlib import Path

from lrpe.atomic import atomic_folder
from lrpe.errors import LrpeError, require
from lrpe.lab.experiments.config_file import to_dict
from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.training.run_files import naming_failure
from lrpe.plugins import Plugin, find_plugins

_FOLDER = "plugins"


def keep_plugins(folder: Path, experiment: Experiment) -> None:
    """Write the plug-ins that an experiment uses beside a new run, and check that a resumed run has the same.

    Raises:
        LrpeError: the run began with another version of a plug-in.
    """
    used = find_plugins(to_dict(experiment))
    for plugin in used if (folder / "config.yaml").exists() else ():
        copy = folder / _FOLDER / plugin.file_name
        require(
            _is_same(copy, plugin),
            f"The plug-in {plugin.file!r} is not the one that {str(folder)!r} began with. To resume, pass --plugin "
            f"{copy}; to use the new one, train in another folder: --out DIR or --runs DIR.",
        )
    if used and not (folder / _FOLDER).exists():
        with naming_failure(folder), atomic_folder(folder / _FOLDER) as temporary:
            for plugin in used:
                (temporary / plugin.file_name).write_text(plugin.source, encoding="utf-8")


def report_changed_plugins(folder: Path, experiment: Experiment) -> None:
    """Print which plug-ins of a finished run have changed since, because its results are not trained again."""
    for plugin in find_plugins(to_dict(experiment)):
        if not _is_same(folder / _FOLDER / plugin.file_name, plugin):
            print(f"{folder} was trained with another version of the plug-in {plugin.file}.", file=sys.stderr)


def _is_same(copy: Path, plugin: Plugin) -> bool:
    try:
        return copy.is_file() and copy.read_text(encoding="utf-8") == plugin.source
    except (OSError, UnicodeDecodeError) as error:
        raise LrpeError(f"The plug-in {str(copy)!r} of the run cannot be read: {error}.") from error
