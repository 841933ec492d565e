"""The datasets of Long-Range Arena, and for each task one that every machine has."""

from lrpe.data.citations import ENTRIES as CITATIONS
from lrpe.data.digits_sequence import ENTRIES as DIGITS
from lrpe.data.listops import ENTRIES as LISTOPS
from lrpe.data.lra_image import ENTRIES as IMAGE
from lrpe.data.lra_retrieval import ENTRIES as RETRIEVAL
from lrpe.data.lra_text import ENTRIES as TEXT
from lrpe.data.pathfinder import ENTRIES as PATHFINDER
from lrpe.data.stdlib_packages import ENTRIES as PACKAGES
from lrpe.data.stdlib_pairs import ENTRIES as PAIRS

ENTRIES = (*LISTOPS, *PATHFINDER, *TEXT, *PACKAGES, *RETRIEVAL, *CITATIONS, *PAIRS, *IMAGE, *DIGITS)
