"""``python -m lrpe.cli`` is ``lrpe``."""

import sys

from lrpe.cli.command_line import main

if __name__ == "__main__":
    sys.exit(main())
