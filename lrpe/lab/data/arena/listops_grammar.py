"""ListOps (Nangia and Bowman, 2018): expressions such as [MAX 2 9 [MIN 4 7 ] 0 ], whose value is a digit.

The sixteen ids: 0-9 are the digits, 10-13 the operators [MIN [MAX [MED [SM, 14 the closing bracket, 15 the padding.
[SM is the sum modulo 10, [MED the median, rounded down. The parentheses of the published files only repeat the tree
that the brackets already show; they are left out, as the official loader does.
"""

from collections.abc import Sequence

from lrpe.errors import LrpeError, require

SYMBOLS = (*"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]")
FIRST_OPERATOR, CLOSE, PADDING = 10, 14, 15
IDS = {symbol.encode(): i for i, symbol in enumerate(SYMBOLS)}


def encode(text: bytes) -> bytes:
    """The ids of an expression, one byte each; parentheses are left out."""
    try:
        return bytes([IDS[symbol] for symbol in text.translate(None, b"()").split()])
    except KeyError as error:
        known = " ".join(SYMBOLS)
        raise LrpeError(f"An expression of ListOps is written in {known}; got {error.args[0][:40]!r}.") from None


def decode(ids: Sequence[int]) -> str:
    return " ".join(SYMBOLS[i] for i in ids)


def evaluate(ids: Sequence[int]) -> int:
    """The value of an expression.

    >>> evaluate(encode(b"[MAX 2 9 [MIN 4 7 ] 0 ]"))
    9
    """
    outside: list[tuple[int, list[int]]] = []  # operators that wait for their bracket, and what stood before them
    arguments: list[int] = []
    for symbol in ids:
        if symbol < FIRST_OPERATOR:
            arguments.append(symbol)
        elif symbol < CLOSE:
            outside.append((symbol, arguments))
            arguments = []
        else:
            require(bool(outside and arguments), "A bracket closes an operator with arguments; got one that does not.")
            operator, before = outside.pop()
            before.append(OPERATIONS[operator](arguments))
            arguments = before
    require(
        not outside and len(arguments) == 1,
        lambda: f"An expression is one value; got {len(arguments)}, and {len(outside)} brackets that are not closed.",
    )
    return arguments[0]


def median(values: list[int]) -> int:
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) // 2


OPERATIONS = {10: min, 11: max, 12: median, 13: lambda values: sum(values) % 10}
