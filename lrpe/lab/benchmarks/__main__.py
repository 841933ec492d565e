"""The child process of ``process.measure_apart``: reads a JSON request, prints one line of JSON."""

import json
import sys
from importlib import import_module

from lrpe.errors import LrpeError
from lrpe.lab.benchmarks.device import use_device
from lrpe.lab.benchmarks.process import pin
from lrpe.plugins import load_plugin


def main(request: str) -> None:
    """Run ``measure`` of the module named after the benchmark; no other benchmark is imported."""
    asked = json.loads(request)
    pin(asked["threads"])
    try:
        use_device(asked["device"])
        for file in asked["plugins"]:
            load_plugin(file)
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
