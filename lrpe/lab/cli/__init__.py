"""The command line ``lrpe``, with one module per verb."""

from lrpe.lab.cli.command_line import main

__all__ = ["main"]
