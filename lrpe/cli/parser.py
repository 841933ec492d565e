"""The verbs as a jsonargparse parser. A verb is a dataclass: its fields are the options, its docstring is the help."""

import dataclasses
import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, NoReturn, Protocol, get_type_hints

import docstring_parser
from jsonargparse import ArgumentParser

from lrpe.cli.bench import BENCHMARKS
from lrpe.cli.data import DataList, DataPrepare, DataShow
from lrpe.cli.demo import RunDemo
from lrpe.cli.dotted import take_dotted
from lrpe.cli.evaluate import Evaluate
from lrpe.cli.explore import Explore
from lrpe.cli.export import Export
from lrpe.cli.generate import Generate
from lrpe.cli.report import Report
from lrpe.cli.runs import Runs
from lrpe.cli.table import MakeTable
from lrpe.cli.train import Train
from lrpe.cli.verify import Verify

Words = tuple[str, ...]  # ("bench", "encoding")


class Verb(Protocol):
    def run(self) -> int:
        """Do it, and give the exit code."""
        ...


@dataclasses.dataclass(frozen=True)
class Group:
    """Verbs under a verb, as ``lrpe bench encoding``."""

    summary: str
    verbs: Mapping[str, type]


VERBS: dict[str, type | Group] = {
    "demo": RunDemo,
    "table": MakeTable,
    "train": Train,
    "evaluate": Evaluate,
    "generate": Generate,
    "runs": Runs,
    "report": Report,
    "verify": Verify,
    "data": Group("List, show and prepare the datasets.", {"list": DataList, "show": DataShow, "prepare": DataPrepare}),
    "explore": Explore,
    "export": Export,
    "bench": Group("Measure speed, as ratios to a limit of the machine and beside peers.", BENCHMARKS),
}


def parse(argv: Sequence[str]) -> Verb:
    """The verb that was typed, with its options. Help, version and mistakes end the process, as usual."""
    parser = Parser(prog="lrpe", description="Linearized relative positional encoding.", version=version("lrpe"))
    parsers = add_verbs(parser, VERBS)
    words, dotted = take_dotted(argv)
    chosen, place = parser.parse_args(words), ()
    while (word := chosen.get("verb")) is not None:
        chosen, place = chosen[word], (*place, word)
    if place not in parsers:
        (parser if not place else parser.below[place[0]]).print_help(sys.stderr)
        parser.exit(2)
    return parsers[place](**chosen.as_dict() | for_verb(parser, parsers[place], dotted))


def for_verb(parser: "Parser", verb: type, dotted: dict[str, str]) -> dict[str, Any]:
    """Keys with dots in the field that takes them."""
    taking = [field.name for field in dataclasses.fields(verb) if "dotted" in field.metadata]
    if dotted and not taking:
        parser.error(f"unrecognized arguments: --{next(iter(dotted))}")
    return dict.fromkeys(taking, dotted)


class Parser(ArgumentParser):
    """Names the nearest option or verb when it does not know one."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, allow_abbrev=False, **options)
        self.below: dict[str, Parser] = {}

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        parser = getattr(ex, "subcommand_parser", None) or self
        unknown = re.search(r"(?:invalid choice: '|unrecognized arguments: )([^\s'=]+)", message)
        known = [*parser._option_string_actions, *re.findall(r"'([^']+)'", message.partition("choose from")[2])]
        near = difflib.get_close_matches(unknown[1], known, n=2, cutoff=0.5) if unknown else []
        super().error(f"{message}. Did you mean {' or '.join(near)}?" if near else message, ex)


def add_verbs(parser: Parser, verbs: Mapping[str, type | Group], place: Words = ()) -> dict[Words, type]:
    """Add the verbs, and what is under them; the dataclasses by the words that lead to them."""
    found: dict[Words, type] = {}
    choices = parser.add_subcommands(required=False, dest="verb", metavar="VERB", title="verbs", description=None)
    for word, verb in verbs.items():
        text = verb.summary if isinstance(verb, Group) else described(verb)
        parser.below[word] = below = Parser(description=text)
        choices.add_subcommand(word, below, help=text.partition("\n")[0])
        if isinstance(verb, Group):
            found |= add_verbs(below, verb.verbs, (*place, word))
        else:
            add_options(below, verb)
            found[(*place, word)] = verb
    return found


def described(verb: type) -> str:
    doc = docstring_parser.parse(verb.__doc__ or "")
    return "\n\n".join(filter(None, [doc.short_description, doc.long_description]))


def add_options(parser: Parser, verb: type) -> None:
    """An option for each field: a flag for a bool, and words without dashes for a field with ``words`` metadata."""
    hints = get_type_hints(verb)
    docs = [docstring_parser.parse(kind.__doc__ or "") for kind in reversed(verb.__mro__)]  # the nearest word holds
    help_of = {param.arg_name: param.description for doc in docs for param in doc.params}
    for field in dataclasses.fields(verb):
        if "dotted" in field.metadata:
            continue
        flags = field.metadata.get("flags", (f"--{field.name.replace('_', '-')}",))
        help_text = help_of.get(field.name)
        if "words" in field.metadata:
            words = field.metadata["words"]
            parser.add_argument(field.name, nargs="*", type=str, default=[], metavar=words, help=help_text)
        elif hints[field.name] is bool:
            parser.add_argument(*flags, action="store_true", help=help_text)
        elif "many" in field.metadata:
            each = field.metadata["many"]
            parser.add_argument(*flags, dest=field.name, nargs="+", type=str, default=[], metavar=each, help=help_text)
        else:
            parser.add_argument(*flags, dest=field.name, type=hints[field.name], default=field.default, help=help_text)
