"""The verbs as a jsonargparse parser. A verb is a dataclass: its fields are the options, its docstring is the help.

jsonargparse handles subcommands, help and words. Four things are done by hand:

- Values are taken as text and converted by ``lrpe.schema``, so that a bad value gets the same message and the same
  bounds (``Range``) on the command line, in a file and from Python.
- Dotted keys are collected before parsing (``take_dotted``). Their defaults are those of the column, method and scale
  that the same command names, and declaring the fields of ``Experiment`` here would import torch for ``lrpe --help``.
- Plug-ins are collected before parsing (``take_plugins``), because every verb takes them and jsonargparse cannot
  repeat an option; the parser has ``--plugin`` for the help alone.
- A configuration file is read by ``lrpe.serialization`` as plain data. jsonargparse would import the class that a
  ``class_path`` in the file names, which would run code from an untrusted file.
"""

import argparse
import dataclasses
import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn, get_args, get_type_hints

import docstring_parser
from jsonargparse import ArgumentParser, DefaultHelpFormatter

from lrpe.errors import LrpeError
from lrpe.lab.cli.words import Group, Verb, parse_word, take_dotted

_Words = tuple[str, ...]  # ("bench", "encoding")
_Verbs = Mapping[str, type[Verb] | Group]


def parse(argv: Sequence[str], parser: "Parser", verbs: Mapping[_Words, type[Verb]]) -> Verb:
    """Return the verb that was typed, with its options; ``make_parser`` returns the parser and the verbs.

    --help and --version end the process.

    Raises:
        LrpeError: a word is unknown, or an option does not fit the type of its field.
    """
    words, dotted = take_dotted(argv)
    chosen, command = parser.parse_args(words), ()
    while (word := chosen.get("verb")) is not None:
        chosen, command = chosen[word], (*command, word)
    if command not in verbs:
        (parser if not command else parser.below[command[0]]).print_help(sys.stderr)
        parser.exit(2)
    return build(verbs[command], chosen.as_dict(), _for_verb(parser, verbs[command], dotted))


def make_parser(verbs: _Verbs) -> tuple["Parser", dict[_Words, type[Verb]]]:
    """Return the parser, and each verb's dataclass by its words."""
    parser = Parser(prog="lrpe", description="Linearized relative positional encoding.", version=_installed_version())
    _add_plugin_help(parser)
    return parser, _add_verbs(parser, verbs)


def _add_plugin_help(parser: "Parser") -> None:
    parser.add_argument(
        "--plugin",
        type=str,
        metavar="FILE",
        help="run this file of Python first, which registers encodings of your own; may be repeated.",
    )


def _installed_version() -> str:
    try:
        return version("lrpe")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "(not installed)"


def build(verb: type[Verb], typed: dict[str, Any], dotted: dict[str, Any]) -> Verb:
    """Return the verb with each option converted to its field's type."""
    hints = get_type_hints(verb, include_extras=True)
    typed = {name: value for name, value in typed.items() if value is not None}  # the others keep their defaults
    flags = {field.name: _flags_of(field)[-1] for field in dataclasses.fields(verb)}  # type: ignore[arg-type]
    options = {name: read(value, hints[name], flags[name]) for name, value in typed.items()}
    return verb(**options, **dotted)


def read(value: str | list[str] | bool, hint: Any, flag: str) -> Any:
    """Return a typed value converted to its field's type; errors name the flag, which positional words lack."""
    if isinstance(value, list):
        (each,) = get_args(hint)
        return [parse_word(word, each, "Each name") for word in value]
    return parse_word(value, hint, flag) if isinstance(value, str) else value


def _for_verb(parser: "Parser", verb: type, dotted: dict[str, str]) -> dict[str, Any]:
    """Return the dotted keys under the verb's field for them; raise LrpeError if it has none."""
    taking = [field.name for field in dataclasses.fields(verb) if "dotted" in field.metadata]
    if dotted and not taking:
        parser.error(f"unrecognized arguments: --{next(iter(dotted))}")
    return dict.fromkeys(taking, dotted)


class _Formatter(DefaultHelpFormatter):
    """Print the help of options unchanged: jsonargparse would add the type, which here is always str."""

    def _get_help_string(self, action: argparse.Action) -> str:
        return action.help or ""


class Parser(ArgumentParser):
    """Raise LrpeError in one sentence, suggesting the closest option or verb for an unknown one.

    By hand because argparse prints its usage and exits, and jsonargparse suggests nothing for a typo.
    """

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, allow_abbrev=False, formatter_class=_Formatter, **options)
        self.below: dict[str, Parser] = {}

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        parser = getattr(ex, "subcommand_parser", None) or self
        unknown = re.search(r"(?:invalid choice: '|unrecognized arguments: )([^\s'=]+)", message)
        known = [*parser._option_string_actions, *re.findall(r"'([^']+)'", message.partition("choose from")[2])]
        near = difflib.get_close_matches(unknown[1], known, n=2, cutoff=0.5) if unknown else []
        sentence = " ".join(message.split()).rstrip(".")
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise LrpeError(f"{sentence}.{hint} See {parser.prog.replace(' [options]', '')} --help.") from ex


def _add_verbs(parser: Parser, verbs: _Verbs, above: _Words = ()) -> dict[_Words, type[Verb]]:
    """Add the verbs and their subcommands; return each verb's dataclass by its words."""
    verbs_by_words: dict[_Words, type[Verb]] = {}
    choices = parser.add_subcommands(required=False, dest="verb", metavar="VERB", title="verbs", description=None)
    for word, verb in verbs.items():
        text = verb.summary if isinstance(verb, Group) else described(verb)
        parser.below[word] = below = Parser(description=text)
        choices.add_subcommand(word, below, help=text.partition("\n")[0])
        if isinstance(verb, Group):
            verbs_by_words |= _add_verbs(below, verb.verbs, (*above, word))
        else:
            add_options(below, verb)
            _add_plugin_help(below)
            verbs_by_words[(*above, word)] = verb
    return verbs_by_words


def described(verb: type) -> str:
    doc = docstring_parser.parse(verb.__doc__ or "")
    return "\n\n".join(filter(None, [doc.short_description, doc.long_description]))


def add_options(parser: Parser, verb: type) -> None:
    """Add an option for each field: a flag for a bool, and words without dashes for a field with ``words`` metadata.

    All values are read as text, which ``build`` converts to the declared type.
    """
    hints = get_type_hints(verb)
    docs = [docstring_parser.parse(kind.__doc__ or "") for kind in reversed(verb.__mro__)]  # subclasses override
    help_of = {param.arg_name: param.description for doc in docs for param in doc.params}
    for field in dataclasses.fields(verb):
        if "dotted" in field.metadata:
            continue
        flags = _flags_of(field)
        help_text = _with_default(help_of.get(field.name), field.default)
        if "words" in field.metadata:
            words = field.metadata["words"]
            parser.add_argument(field.name, nargs="*", type=str, default=[], metavar=words, help=help_text)
        elif hints[field.name] is bool:
            parser.add_argument(*flags, action="store_true", help=help_text)
        elif "many" in field.metadata:
            each = field.metadata["many"]
            parser.add_argument(*flags, dest=field.name, nargs="+", type=str, default=[], metavar=each, help=help_text)
        else:
            metavar = _metavar_of(hints[field.name], field.name)
            parser.add_argument(*flags, dest=field.name, type=str, default=None, metavar=metavar, help=help_text)


def _flags_of(field: dataclasses.Field) -> tuple[str, ...]:
    return field.metadata.get("flags", (f"--{field.name.replace('_', '-')}",))


def _with_default(help_text: str | None, default: Any) -> str | None:
    if any(default is absent for absent in (None, False, dataclasses.MISSING)) or default == "":  # 0 is a default
        return help_text
    return f"{(help_text or '').rstrip('.')} (default: {default})."


def _metavar_of(hint: Any, name: str) -> str:
    kinds = {kind for kind in (hint, *get_args(hint)) if isinstance(kind, type)}
    return next((word for kind, word in {int: "N", float: "X", Path: "PATH"}.items() if kind in kinds), name.upper())
