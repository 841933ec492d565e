"""``lrpe bench compare``: two saved results side by side."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from lrpe.errors import require


@dataclass(frozen=True)
class BenchCompare:
    """Show what changed from one saved result of a benchmark to another, beyond the noise.

    Attributes:
        files: A.json and B.json, as --save wrote them.
        json: print JSON instead of a table.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    files: list[Path] = field(default_factory=list, metadata={"words": "FILE"})
    json: bool = False

    def run(self) -> int:
        from lrpe.lab.benchmarks.compare import compare_results

        require(
            len(self.files) == 2,
            f"Two results are compared: A.json B.json; got {' '.join(map(str, self.files)) or 'none'}.",
        )
        comparison = compare_results(*self.files)
        print(json.dumps(comparison.to_dict(), indent=2, ensure_ascii=False) if self.json else comparison)
        return 0
