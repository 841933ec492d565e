"""Imported before all else of this package, so that a missing transformers is named in one sentence."""

from lrpe.errors import require_extras

require_extras("lrpe.adapt", "models")
