"""A hook of mkdocs: the explorer is a page of the site, so that the table of the family can link to its views."""

from pathlib import Path
from typing import Any

from lrpe.lab.report.explorer.page import write_explorer


def on_post_build(config: Any, **_: Any) -> None:
    write_explorer(Path(config["site_dir"]) / "explorer-page.html")
