"""``lrpe doctor``: what this installation has, and what to do about what is missing."""

import json
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Doctor:
    """Show versions, processor, engines, extras and caches, and how to install what is missing.

    The exit code is 1 if something that was found is broken: a native library that cannot be loaded, a sum that fails
    or is wrong, or a cache that cannot be written. What is not installed is not an error.

    Attributes:
        json: print JSON instead of text.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    json: bool = False

    def run(self) -> int:
        from lrpe.lab.doctor.examination import examine

        examination = examine()
        print(json.dumps(examination.to_dict(), indent=2, ensure_ascii=False) if self.json else examination)
        return 0 if examination.sound else 1
