"""The paper's experiments: rows are methods, columns are tasks.

``plan`` resolves a table into experiments; its module is called ``planning`` because a submodule named ``plan`` would
hide the function.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lrpe.lab.experiments.planning import Cell, Plan, plan

__all__ = ["Cell", "Plan", "plan"]


def __getattr__(name: str) -> Any:
    """Import on first use: planning needs torch, and a command with a typo is refused without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lrpe.lab.experiments import planning

    return getattr(planning, name)
