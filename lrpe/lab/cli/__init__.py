"""The command line, one small file a verb."""

from lrpe.lab.cli.command_line import main

__all__ = ["main"]
