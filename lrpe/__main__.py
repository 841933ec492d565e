"""``python -m lrpe`` is ``lrpe``."""

import sys

from lrpe.lab.cli.command_line import main

if __name__ == "__main__":
    sys.exit(main())
