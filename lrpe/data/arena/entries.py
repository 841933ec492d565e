"""The datasets of Long-Range Arena, and for each task one that every machine has."""

from lrpe.data.arena.citations import ENTRIES as CITATIONS
from lrpe.data.arena.digits_sequence import ENTRIES as DIGITS
from lrpe.data.arena.listops import ENTRIES as LISTOPS
from lrpe.data.arena.lra_image import ENTRIES as IMAGE
from lrpe.data.arena.lra_retrieval import ENTRIES as RETRIEVAL
from lrpe.data.arena.lra_text import ENTRIES as TEXT
from lrpe.data.arena.pathfinder import ENTRIES as PATHFINDER
from lrpe.data.arena.stdlib_packages import ENTRIES as PACKAGES
from lrpe.data.arena.stdlib_pairs import ENTRIES as PAIRS

ENTRIES = (*LISTOPS, *PATHFINDER, *TEXT, *PACKAGES, *RETRIEVAL, *CITATIONS, *PAIRS, *IMAGE, *DIGITS)
