"""The measuring side of ``process.measure_apart``: a request in, one line of JSON out."""

import json
import sys
from importlib import import_module

from lrpe.errors import LrpeError
from lrpe.lab.benchmarks.process import pin


def main(request: str) -> None:
    """Measure with the ``measure`` of the module of the benchmark's name, which alone is loaded."""
    asked = json.loads(request)
    pin(asked["threads"])
    try:
        benchmark = import_module(f"lrpe.lab.benchmarks.{asked['benchmark']}")
        result = benchmark.measure(**asked["options"])
    except LrpeError as error:
        reply = {"error": str(error)}
    except ModuleNotFoundError as error:
        reply = {"missing": error.name}
    else:
        reply = {"result": result.to_dict(), "text": str(result)}
    print(json.dumps(reply))


if __name__ == "__main__":
    main(sys.argv[1])
