"""Whatever is typed for an option of whatever verb, the answer is an exit code, and one sentence if it is refused."""

import dataclasses
import shutil
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from lrpe.lab.cli import main
from lrpe.lab.cli.command_line import VERBS
from lrpe.lab.cli.words import Group
from lrpe.lab.data.text.tokenizer import byte_level
from lrpe.lab.experiments.columns import stdlib
from lrpe.lab.experiments.experiment import to_dict
from lrpe.lab.experiments.scale import smoke
from lrpe.models import LrpeConfig, LrpeForCausalLM

pytestmark = pytest.mark.slow

VERB_AT = {
    (word, inner) if inner else (word,): verb.verbs[inner] if isinstance(verb, Group) else verb
    for word, verb in VERBS.items()
    for inner in (verb.verbs if isinstance(verb, Group) else [""])
}
LONG, DEEP, HUGE = "n" * 300, "[" * 1100, str(10**23)  # deeper than Python recurses: 1000
BOMB = "a: &a [x, x]\n" + "".join(f"{k}: &{k} [*{p}, *{p}]\n" for p, k in zip("abcdefgh", "bcdefghi", strict=True))
INTS = ["", "abc", "1.5", "-1", "1e3", "10^23", HUGE, "nan", "True", "[1]", "²", "9" * 5000, DEEP, "\udcff", "*a"]
FLOATS = ["", "abc", "-1", "nan", ".nan", "inf", "1e400", "[1]", "²", DEEP, "\udcff"]
PATHS = [
    "",
    LONG,
    "x/" * 3000,
    "/dev/null/x",
    "folder",
    "deep",
    "bomb",
    "list",
    "bytes",
    "nosuch",
    "a\0b",
    "\udcff",
    ".",
]
TEXTS = ["", LONG, ",", "=", "a=b", "0,²", f"0,{HUGE}", "-1", DEEP, BOMB, "\udcff", "../..", "*unitary", "fourier*",
         "type2+", "+yarn", "x=", f"books={LONG}", "length=abc", "\n"]  # fmt: skip
KEYS = ["training.seed", "training.optimization.rate", "training.optimization.betas", "model", "model.decay",
        "data.options.length", "data.path", "data.name", "architecture", "start", "column", "method", "variant",
        "lengths", "scored", "x.y.z", ".", "a..b", "a." * 400 + "b"]  # fmt: skip
VALUES = ["", "abc", HUGE, "nan", "[1]", "{a: 1}", DEEP, BOMB, LONG]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a small model that is a run as well, and with files of all sorts."""
    folder = tmp_path_factory.mktemp("nasty")
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    ends = {"bos_token_id": 257, "eos_token_id": 258, "pad_token_id": 256}
    torch.manual_seed(0)  # of the weights: others may end their text after a few tokens
    LrpeForCausalLM(LrpeConfig(**small, **ends, vocab_size=260)).save_pretrained(folder / "run")
    byte_level().save(folder / "run")
    experiment = smoke(stdlib()).with_data({})
    (folder / "run" / "config.yaml").write_text(yaml.safe_dump(to_dict(experiment)))
    for name, text in {"deep": DEEP + "]" * len(DEEP), "bomb": BOMB, "list": "[1]"}.items():
        (folder / name).write_text(text)
    (folder / "bytes").write_bytes(b"\xff\xfe")
    (folder / "folder").mkdir()
    return folder


@pytest.fixture(autouse=True)
def nothing_is_trained_or_measured(place, monkeypatch):
    """What is accepted ends where the work would begin."""
    monkeypatch.chdir(place)
    monkeypatch.setattr("lrpe.lab.experiments.run.run_in", lambda *_, **__: {})
    monkeypatch.setattr("lrpe.lab.experiments.run.score", lambda *_, **__: {})
    monkeypatch.setattr("lrpe.lab.experiments.cost.describe_plan", lambda cells, speed: "")
    monkeypatch.setattr("lrpe.lab.experiments.run.run_experiments", lambda *_, **__: {})
    monkeypatch.setattr("lrpe.lab.report.results.report_table", lambda chosen, out, command: ("", out))
    monkeypatch.setattr("lrpe.lab.report.runs.report_runs", lambda folders, out, command: out)
    monkeypatch.setattr("lrpe.lab.report.explorer.page.write_explorer", lambda out, *_: out)
    monkeypatch.setattr("lrpe.adapt.export.export", lambda source, to, remote_code: Path("run"))
    monkeypatch.setattr("lrpe.lab.benchmarks.process.measure_apart", lambda *_, **__: ({"benchmark": ""}, ""))
    monkeypatch.setattr("transformers.GenerationMixin.generate", lambda *_, **__: None)


VALID = {  # words with which a verb is accepted, and does nothing that takes long
    ("table",): ["lm", "--dry-run", "--scale", "smoke", "--rows", "base", "--columns", "stdlib", "--tflops", "1"],
    ("train",): ["stdlib", "--scale", "smoke"],
    ("evaluate",): ["run"],
    ("generate",): ["run"],
    ("runs",): ["--runs", "run"],
    ("report",): ["run"],
    ("verify",): ["rope", "--head-dim", "2"],
    ("data", "show"): ["digits"],
    ("data", "prepare"): ["digits"],
    ("export",): ["run", "--to", "to"],
}


def nasty_lines(words: tuple[str, ...]):
    """Command lines of a verb: each of its options with each word of its type and worse, and none."""
    verb, valid = VERB_AT[words], VALID.get(words, [])
    hints = get_type_hints(verb)
    for field in dataclasses.fields(verb):
        kinds = {kind for hint in (hints[field.name], *get_args(hints[field.name])) for kind in (hint, *get_args(hint))}
        flag = field.metadata.get("flags", (f"--{field.name.replace('_', '-')}",))[-1]
        nasty = INTS if int in kinds else FLOATS if float in kinds else PATHS if Path in kinds else TEXTS
        if "words" in field.metadata:
            yield from ([*words, word, *valid[1:]] for word in (*nasty, *TEXTS))
        elif "dotted" in field.metadata:
            keys = KEYS if words == ("train",) else ()  # those of a table are read by the same code
            yield from ([*words, *valid, f"--{key}={value}"] for key in keys for value in VALUES)
        elif "many" in field.metadata:
            yield from ([*words, *valid, flag, word] for word in nasty)
        elif bool not in kinds:
            yield from ([*words, *valid, f"{flag}={word}"] for word in nasty)
            yield [*words, *valid, flag]


ALIKE = [
    ("bench", word) for word in ("encoding", "attention", "block", "decode", "language", "loop")
]  # they have length's options


@pytest.mark.parametrize("words", [words for words in VERB_AT if words not in ALIKE], ids=" ".join)
def test_no_word_for_an_option_ends_in_a_traceback(words, capsys):
    problems = [problem for line in nasty_lines(words) if (problem := find_problem(line, capsys))]
    assert not problems


def find_problem(line, capsys) -> str | None:
    """What is wrong with the answer to a command line, if anything."""
    try:
        code = main(line)
    except BaseException as error:
        return f"{line}: {error!r}"
    said = capsys.readouterr().err
    one_sentence = said.startswith("lrpe: ") and said.count("\n") == 1 and len(said) < 3000
    return None if code in (0, 1) or (code == 2 and one_sentence) else f"{line}: {code} {said}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["train", "stdlib", "--seed", HUGE], "--seed must be a whole number from 0 to 9,223,372,036,854,775,807; got"),
        (["table", "lm", "--tflops", "0"], "--tflops must be a number from 1e-06 to 1,000,000,000.0; got 0"),
        (["evaluate", "run", "--batches", "-1"], "--batches must be a whole number of at least 0; got -1"),
        (["evaluate", "nosuch"], "'nosuch/config.yaml' cannot be read: No such file or directory"),
        (["train", "--config", "deep"], "'deep' cannot be read: it is not YAML: it has more than 40 brackets"),
        (["train", "--config", "bomb"], "'bomb' cannot be read: it is not YAML: an alias (*name) is not read here"),
        (["train", "stdlib", "--training.updates", "3"], "Did you mean 'training.optimization.updates'?"),
        (["train", "stdlib", "--data.options.length", "abc"], "length of stdlib must be a whole number of at least"),
        (["data", "show", "stdlib", "--options", "length=abc"], "length of stdlib must be a whole number of at least"),
        (["data", "show", "text", "--path", "folder", "--options", "every=-3"], "every of text must be a whole number"),
        (["data", "show", "stdlib", "--options", f"tokenizer={LONG}"], "tokenizer must be 'bytes', 'words', 'bpe"),
        (["data", "show", "stdlib", "--options", "tokenizer=bpe:" + "9" * 5000], "tokenizer must be 'bytes', 'words'"),
        (["data", "show", "stdlib", "--options", "packed=perhaps"], "packed of stdlib must be true or false; got"),
        (["report"], "lrpe report needs at least one folder that is or contains a run"),
        (["report", "folder"], "there is no config.yaml under 'folder'"),
        (["generate", LONG], "Each name must be a path, of names with at most 255 bytes; got 'nnn"),
        (["generate", "run", "--prompt", "\udcff"], "--prompt must be UTF-8 text"),
        (["bench", "compare", "deep", "deep"], "it has more than 40 brackets within brackets"),
    ],
)  # fmt: skip
def test_what_is_refused_is_refused_with_the_option_the_value_and_what_is_allowed(line, said, capsys):
    assert main(line) == 2
    assert said in capsys.readouterr().err


def cut_weights(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100])


def reshape_weights(folder):
    file = folder / "model.safetensors"
    save_file({name: torch.zeros(2, 2) for name in load_file(file)}, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut_weights, "Weights cannot be read from"),
        (reshape_weights, "have other shapes than its config.json says: ['model.embed_tokens.weight'"),
        (lambda folder: (folder / "model.safetensors").unlink(), "must have a model.safetensors"),
        (lambda folder: (folder / "config.json").write_text(DEEP), "config.json"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "llama"}'), "not one of ours"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "is not a valid tokeniser"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "nor beside the weights"),
    ],
)
def test_foreign_and_damaged_models_are_refused_in_a_sentence(damage, said, place, tmp_path, capsys):
    shutil.copytree(place / "run", tmp_path / "model")
    damage(tmp_path / "model")
    assert main(["generate", str(tmp_path / "model")]) == 2
    captured = capsys.readouterr().err
    assert said in captured
    assert captured.count("\n") == 1


def test_what_lies_beside_a_tokenizer_is_not_read(place, tmp_path):
    shutil.copytree(place / "run", tmp_path / "model")
    (tmp_path / "model" / "tokenizer_config.json").write_text("[]")  # it could name code to run
    assert main(["generate", str(tmp_path / "model"), "--tokens", "1"]) == 0


def test_settings_beside_a_model_do_not_change_what_was_asked_for(place, tmp_path, monkeypatch, capsys):
    monkeypatch.undo()
    shutil.copytree(place / "run", tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").write_text('{"max_length": 3, "num_beams": -3}')
    assert main(["generate", str(tmp_path / "model"), "--prompt", "def", "--tokens", "40"]) == 0
    captured = capsys.readouterr()
    assert len(captured.out) > 20
    assert captured.err == ""  # no warning of a length in the midst of a text
