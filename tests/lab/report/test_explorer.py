"""The explorer's page as a file: one, small, alone, legible; and what a run has learned is in it."""

import json
import re
import sys
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from lrpe import LrpeError
from lrpe.encodings.basis import Identity
from lrpe.encodings.config import ANGLES, BASES, MATRICES
from lrpe.encodings.family import FAMILY
from lrpe.encodings.matrix_basis import LearnedOrthogonal
from lrpe.encodings.unitary import Unitary
from lrpe.lab.experiments.methods import METHODS
from lrpe.lab.report.explorer.dense import MOST
from lrpe.lab.report.explorer.learned import read_run
from lrpe.lab.report.explorer.page import SCRIPTS, explorer, page_data, write_explorer
from lrpe.lab.report.picture import LOOKS
from lrpe.models import LrpeForCausalLM
from tests.lab.report.browser import open_browser
from tests.models.tiny import tiny

FOLDER = files("lrpe.lab.report.explorer")


@pytest.fixture(scope="module")
def page():
    return explorer()


def data_in(page):
    return json.loads(re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page, re.S)[1])


def test_the_page_is_one_file_below_2_mb(page):
    assert len(page.encode()) < 2_000_000
    assert page.count("</script>") == 3
    written = re.sub(r"(<script[^>]*>).*?</script>", r"\1", page, flags=re.S)
    assert not re.search(r"\ssrc=|@import|url\(|<link[^>]*href=.http", written)


def test_every_script_of_the_folder_is_in_it():
    found = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.js")}
    assert found == set(SCRIPTS)


def test_every_file_named_beside_an_equation_exists():
    named = re.findall(r"<code>(lrpe/[\w/]+\.py)</code>", (FOLDER / "page.html").read_text(encoding="utf-8"))
    assert len(named) >= 7
    assert all((Path(__file__).parents[3] / name).is_file() for name in named)


def test_names_and_colours_are_those_of_the_methods(page):
    methods = data_in(page)["methods"]
    assert set(methods) == set(FAMILY)
    stepping = {name for name, method in methods.items() if method.get("stepping")}
    assert stepping == {"selective", "selective-free", "switched", "mamba3"}
    rows = (set(METHODS) & set(FAMILY)) - stepping
    assert {name: methods[name]["title"] for name in rows} == {name: METHODS[name].title for name in rows}
    assert {name: methods[name]["colour"] for name in rows} == {name: LOOKS[name].colour for name in rows}


def test_a_member_of_ones_own_is_on_the_page_or_named_with_the_reason(monkeypatch):
    monkeypatch.setitem(FAMILY, "mine", lambda _: {"basis": "cosine", "matrix": "unitary", "steps": "head"})
    monkeypatch.setitem(FAMILY, "broken", lambda _: 1 / 0)
    monkeypatch.setitem(FAMILY, "given", lambda _: {"matrix": "unitary", "angles": (1.0,)})
    data = page_data([])
    assert data["methods"]["mine"] | {"basis": "cosine", "stepping": True} == data["methods"]["mine"]
    assert data["refused"] == [
        "broken: ZeroDivisionError('division by zero')",
        "given: its angles, 'given', cannot be drawn.",
    ]


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("gausian:16", "no kernel named 'gausian'. Did you mean 'gaussian'"),
        ("gaussian", "written NAME:WIDTH, such as gaussian:16; got 'gaussian'"),
        ("window:-1", "width must be a finite number above 0"),
    ],
)
def test_a_kernel_that_cannot_be_read_is_refused(kernel, said):
    with pytest.raises(LrpeError, match=said):
        page_data([], [kernel])


def test_words_stand_out_from_the_page_in_light_and_in_dark():
    style = (FOLDER.parent / "style.css").read_text(encoding="utf-8")
    roots = re.findall(r":root {(.*?)}", style, re.S)
    light, dark = (dict(re.findall(r"--(\w+): (#\w{6});", root)) for root in roots)
    assert light.keys() == dark.keys()
    for theme in (light, dark):
        for behind in ("page", "card"):
            assert all(contrast(theme[word], theme[behind]) >= 4.5 for word in ("ink", "soft", "link"))


def contrast(one, other):
    """As WCAG measures it: 4.5 is legible."""
    dark, bright = sorted(luminance(colour) for colour in (one, other))
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("name", ["type1", "type2", "type3", "none", "per", "learned*orthogonal", "half-rotated"])
def test_a_run_is_read_layer_by_layer(tmp_path, name):
    model = tiny(LrpeForCausalLM, name).float()
    model.save_pretrained(tmp_path / "run" / "best")
    run = read_run(tmp_path / "run")
    assert run["title"] == "run"
    assert [layer["title"] for layer in run["layers"]] == ["layer 0", "layer 1"]
    for block, layer in zip(model.model.layers, run["layers"], strict=True):
        assert layer["dim"] == 8
        assert layer["heads"] == 4  # each has a decay of its own
        assert layer["decay"] == block.attention.decay.r.tolist()
        assert layer["choice"]["matrix"] in page_data([])["matrices"]


def test_what_was_learned_is_read_and_not_what_it_began_with(tmp_path):
    model = tiny(LrpeForCausalLM, {"name": "type2", "learned_basis": True}, decay=None).float()
    encoding = model.model.layers[1].attention.encoding
    with torch.no_grad():
        encoding.matrix.angles.log_alpha.sub_(1)
        encoding.basis.v.add_(1)
    model.save_pretrained(tmp_path)
    layer = read_run(tmp_path)["layers"][1]
    assert [entry["alpha"] for entry in layer["matrix"]] == [encoding.matrix.angles.alpha.double().tolist()]
    assert layer["basis"]["vectors"] == encoding.basis.v.tolist()
    assert layer["decay"] == [1.0]
    assert layer["heads"] == 1


def test_a_permutation_is_read_from_its_cycles(tmp_path):
    model = tiny(LrpeForCausalLM, "type3").float()
    model.save_pretrained(tmp_path)
    matrix = model.model.layers[0].attention.encoding.matrix
    (entry,) = read_run(tmp_path)["layers"][0]["matrix"]
    assert torch.equal(torch.eye(8)[entry["permutation"]], matrix.dense(1).real.float())


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (None, "no folder"),
        ({}, "has neither"),
        ({"config.json": "no JSON"}, "not JSON that can be read"),
        ({"config.json": "{}"}, "model of type None"),
        ({"config.json": '{"model_type": "gpt2"}'}, "model of type 'gpt2'"),
    ],
)
def test_a_folder_that_is_no_run_is_refused_in_a_sentence(tmp_path, written, sentence):
    folder = tmp_path / "run"
    if written is not None:
        folder.mkdir()
    for name, text in (written or {}).items():
        (folder / name).write_text(text)
    with pytest.raises(LrpeError, match=sentence):
        read_run(folder)


def test_a_run_without_an_encoding_of_the_family_is_refused(tmp_path):
    tiny(LrpeForCausalLM, "spe").float().save_pretrained(tmp_path)
    with pytest.raises(LrpeError, match="P × Λ along a sequence"):
        read_run(tmp_path)


def test_a_layer_that_cannot_be_drawn_is_named_and_the_others_are(tmp_path, monkeypatch):
    tiny(LrpeForCausalLM, "learned*orthogonal").float().save_pretrained(tmp_path / "wide")
    monkeypatch.setattr("lrpe.lab.report.explorer.learned.WIDEST", 4)
    with pytest.raises(
        LrpeError, match=r"no layer.*LearnedOrthogonal has no formula on the page, so dim must be at most 4; got dim=8"
    ):
        read_run(tmp_path / "wide")
    mixed = tiny(LrpeForCausalLM, "type2").float()
    mixed.model.layers[1].attention.encoding.basis = LearnedOrthogonal(8)
    monkeypatch.setattr("lrpe.lab.report.explorer.learned.open_model", lambda _: mixed)
    run = read_run(tmp_path / "wide")
    assert [layer["title"] for layer in run["layers"]] == ["layer 0"]
    assert page_data([run])["refused"] == run["refused"]
    assert run["refused"][0].startswith("Layer 1 of wide: LearnedOrthogonal has no formula on the page")


def test_a_layer_that_diverged_is_named_and_the_others_are_drawn(tmp_path):
    model = tiny(LrpeForCausalLM, "type2").float()
    torch.nn.init.constant_(model.model.layers[0].attention.encoding.matrix.angles.log_alpha, torch.nan)
    model.save_pretrained(tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert [layer["title"] for layer in run["layers"]] == ["layer 1"]
    assert run["refused"] == [
        "Layer 0 of run: matrix.angles.log_alpha of its encoding is not finite: the run has diverged."
    ]


class Stretched(Identity):
    def transform(self, x, table):
        return 2 * x


class Hurrying(Unitary):
    """No representation of the integers: the second step is longer than the first."""

    def dense(self, s):
        return super().dense(s * s)


def fails(_):
    raise ValueError("a library that is not installed")


@pytest.mark.parametrize(
    ("register", "make", "sentence"),
    [
        (BASES, lambda config: Stretched(config.head_dim), "P must be unitary, Pᴴ P = I; the error is 3"),
        (BASES, fails, r"ValueError\('a library that is not installed'\)"),
        (MATRICES, lambda config, _: Hurrying(config.head_dim), r"s-th power of Λ\^\(1\); at s = -3 the error is"),
        (ANGLES, lambda count, length: torch.ones(3), r"α must have the shape \(4,\); got \(3,\)"),
    ],
)
def test_what_was_registered_and_cannot_be_drawn_is_refused_in_a_sentence(monkeypatch, register, make, sentence):
    monkeypatch.setitem(register, "odd one", make)
    told = page_data([])
    assert "odd one" not in {*told["bases"], *told["matrices"], *told["angles"]}
    (refused,) = told["refused"]
    assert re.match(rf"odd one: .*{sentence}", refused), refused


def test_the_page_has_room_for_some_registered_factors_and_says_which_it_leaves_out(monkeypatch):
    for number in range(MOST + 2):
        monkeypatch.setitem(BASES, f"basis {number}", lambda config: Identity(config.head_dim))
    told = page_data([])
    assert len(told["dense"]["bases"]) == MOST
    assert told["refused"] == [
        f"basis {n}: the page shows at most {MOST} registered factors." for n in (MOST, MOST + 1)
    ]


@pytest.mark.parametrize(
    ("name", "sentence"), [("page.png", "such as explorer.html"), ("none/page.html", "folder must exist")]
)
def test_a_place_that_cannot_hold_the_page_is_refused(tmp_path, name, sentence):
    with pytest.raises(LrpeError, match=sentence):
        write_explorer(tmp_path / name)
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(LrpeError, match="is a folder"):
        write_explorer(tmp_path / "folder.html")


def test_without_vl_convert_a_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(LrpeError, match=r"pip install 'lrpe\[report\]'"):
        write_explorer(tmp_path / "explorer.html")


@pytest.mark.parametrize(("required", "outcome"), [("1", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_missing_browser_fails_where_one_is_required_and_skips_elsewhere(monkeypatch, required, outcome):
    monkeypatch.setenv("LRPE_REQUIRE_BROWSER", required)
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(outcome, match="apt-get install chromium"), open_browser():
        pass
