"""The command line, one small file a verb."""

from lrpe.cli.command_line import main

__all__ = ["main"]
