"""The datasets of Long-Range Arena, and for each task one that every machine has."""

from lrpe.lab.data.arena.citations import ENTRIES as CITATIONS
from lrpe.lab.data.arena.digits_sequence import ENTRIES as DIGITS
from lrpe.lab.data.arena.listops import ENTRIES as LISTOPS
from lrpe.lab.data.arena.lra_image import ENTRIES as IMAGE
from lrpe.lab.data.arena.lra_retrieval import ENTRIES as RETRIEVAL
from lrpe.lab.data.arena.lra_text import ENTRIES as TEXT
from lrpe.lab.data.arena.pathfinder import ENTRIES as PATHFINDER
from lrpe.lab.data.arena.stdlib_packages import ENTRIES as PACKAGES
from lrpe.lab.data.arena.stdlib_pairs import ENTRIES as PAIRS

ENTRIES = (*LISTOPS, *PATHFINDER, *TEXT, *PACKAGES, *RETRIEVAL, *CITATIONS, *PAIRS, *IMAGE, *DIGITS)
