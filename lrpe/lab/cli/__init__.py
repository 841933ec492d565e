"""The command line: one small file per verb."""

from lrpe.lab.cli.command_line import main

__all__ = ["main"]
