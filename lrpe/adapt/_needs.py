"""Import this first in the package, so that a missing transformers gives one clear error."""

from lrpe.errors import require_extras

require_extras("lrpe.adapt", "models")
