"""The command line ``lrpe``: its verbs, and the parser of their options."""

from lrpe.lab.cli.command_line import main

__all__ = ["main"]
