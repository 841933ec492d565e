"""The measuring side of ``process.measure_apart``: a request in, one line of JSON out."""

import json
import sys

from lrpe.benchmarks import attention, block, decode, encoding, length, train
from lrpe.benchmarks.process import pin
from lrpe.errors import LrpeError

BENCHMARKS = {
    "attention": attention.measure,
    "block": block.measure,
    "decode": decode.measure,
    "encoding": encoding.measure,
    "length": length.measure,
    "train": train.measure,
}


def main(request: str) -> None:
    asked = json.loads(request)
    pin(asked["threads"])
    try:
        result = BENCHMARKS[asked["benchmark"]](**asked["options"])
    except LrpeError as error:
        reply = {"error": str(error)}
    else:
        reply = {"result": result.to_dict(), "text": str(result)}
    print(json.dumps(reply))


if __name__ == "__main__":
    main(sys.argv[1])
