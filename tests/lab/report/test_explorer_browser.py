"""The explorer in a real browser: it needs no network, answers its sliders, and computes what the library computes."""

import itertools
from pathlib import Path

import pytest
import torch

from lrpe import encoding
from lrpe.encodings.basis import Basis
from lrpe.encodings.config import ANGLES, BASES, MATRICES
from lrpe.encodings.family import FAMILY
from lrpe.encodings.position_matrix import PositionMatrix
from lrpe.lab.experiments.methods import METHODS
from lrpe.lab.report.explorer.learned import read_run
from lrpe.lab.report.explorer.page import write_explorer
from lrpe.lab.report.picture import LOOKS
from lrpe.models import LrpeForCausalLM
from lrpe.theory import gaussian
from lrpe.theory.matching import matching
from tests.lab.report.browser import SIZES, close, open_browser, opened
from tests.models.tiny import tiny

pytestmark = pytest.mark.slow

ARTEFACTS = Path(__file__).parents[2] / "artefacts"
PLACES = ("kernel", "scores", "features", "path", "spectrum", "delta")
PICTURES = 2 * len(PLACES) + 1  # A and B, and the tokens of A
PRODUCTS = [
    (basis, matrix, angles)
    for basis, matrix, angles in itertools.product(BASES, MATRICES, ANGLES)
    if basis != "learned" and (matrix != "permutation" or angles == "geometric")
]
BASE, LENGTH, POSITIONS = 3.0, 6, [0, 1, 2, 7, 100, 4096]


class Backwards(Basis):
    """P x is x in reverse, turned by i: real formulas do not draw it."""

    is_complex = True

    def table(self, dtype=torch.float32):
        return ()

    def transform(self, x, table):
        return torch.cat([torch.zeros_like(x), x.flip(-1)], -1)


class Shift(PositionMatrix):
    """Λ^(s) shifts all features by s places, round and round: a real Λ that is none of the paper's types."""

    def table(self, positions, dtype=torch.float32):
        return ((torch.arange(self.dim) - positions[:, None, :, None]) % self.dim,)  # one for all heads

    def transform(self, y, table):
        return y.gather(-1, table[0].expand(y.shape))

    def dense(self, s):
        return torch.eye(self.dim, dtype=torch.complex128).roll(s, 0)


def golden(count, length):
    """α_k = 0.618^k π / length."""
    return torch.pi / length * 0.618 ** torch.arange(count, dtype=torch.float64)


@pytest.fixture(scope="module")
def browser():
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose angles are no longer those that it began with, each head's its own."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    model = tiny(LrpeForCausalLM, {"name": "type2", "heads": 4, "reflections": 2}).float()
    for block in model.model.layers:
        torch.nn.init.uniform_(block.attention.encoding.matrix.angles.start, -1, 1)
    model.save_pretrained(folder / "last")
    return folder, model


@pytest.fixture(scope="module")
def registered(browser, tmp_path_factory):
    """A page, and a model on it, of a process in which a P, a Λ and an α were registered."""
    folder = tmp_path_factory.mktemp("registered")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BASES, "backwards", lambda config: Backwards(config.head_dim))
        patch.setitem(MATRICES, "shift", lambda config, _: Shift(config.head_dim))
        patch.setitem(ANGLES, "golden", golden)
        model = tiny(LrpeForCausalLM, "backwards*shift").float()
        model.save_pretrained(folder / "run")
        yield opened(browser, write_explorer(folder / "explorer.html", [read_run(folder / "run")]), "light"), model


@pytest.fixture(scope="module")
def file(tmp_path_factory, run):
    return write_explorer(tmp_path_factory.mktemp("page") / "explorer.html", [read_run(run[0])])


@pytest.fixture(scope="module")
def page(browser, file):
    return opened(browser, file, "light")


@pytest.mark.parametrize("kind", SIZES)
def test_the_page_loads_from_disk_in_silence_and_is_kept_as_a_picture(browser, file, kind):
    page = opened(browser, file, kind)
    assert page.said == []
    assert page.asked == [file.as_uri()]
    assert page.evaluate("document.querySelectorAll('main canvas').length") == PICTURES
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"explorer-{kind}.png", full_page=True)
    page.close()


def test_every_slider_moved_by_the_keyboard_changes_a_picture_and_nothing_is_said(browser, file):
    page = opened(browser, file, "light")
    page.select_option("#shared [name=content]", "feature")
    for slider in ("base", "seed", "fade", "n", "reach", "pair", "feature"):
        before = drawn(page)
        page.locator(f"[name={slider}]").first.press("ArrowLeft" if slider in ("fade", "pair") else "ArrowRight")
        page.wait_for_function("before => picturesNow().join() !== before", arg=before)
    assert page.said == []
    page.close()


def drawn(page):
    page.evaluate("window.picturesNow = () => [...document.querySelectorAll('main canvas')].map((c) => c.toDataURL())")
    return page.evaluate("picturesNow().join()")


def test_a_slider_of_one_panel_leaves_the_other_as_it_is(browser, file):
    page = opened(browser, file, "light")
    drawn(page)
    before = page.evaluate("picturesNow()")
    page.locator("[name=base]").first.press("ArrowRight")
    page.wait_for_function("before => picturesNow()[0] !== before[0]", arg=before)
    assert page.evaluate("picturesNow()")[1 : 2 * len(PLACES) : 2] == before[1 : 2 * len(PLACES) : 2]
    page.close()


@pytest.mark.parametrize(("basis", "matrix", "angles"), PRODUCTS)
def test_the_browser_computes_what_the_library_computes(page, basis, matrix, angles):
    for dim, seed, content in ((8, 3, "apart"), (64, 0, "positive")):
        options = {"angles": angles, "base": 10**BASE, "length": 2**LENGTH, "seed": seed}
        encode = encoding(f"{basis}*{matrix}", dim, **options)
        choice = {"name": "composed", "basis": basis, "matrix": matrix, "angles": angles}
        choice |= {"base": BASE, "length": LENGTH, "seed": seed, "fade": 10}  # r = 1 - 2^-5
        check_agreement(page, f"encodingOf({choice}, {dim})", encode, 1 - 2**-5, content)


@pytest.mark.parametrize("name", FAMILY)
def test_the_address_names_a_member_and_the_page_draws_it(browser, file, name):
    page = browser.new_page()
    page.goto(f"{file.as_uri()}#left={name}&right=nobody")
    page.evaluate("ready")
    shown = page.locator("#panels .title").all_inner_texts()
    encode = encoding(name, 8, length=2**9, seed=0)
    note = page.get_by_text("Its steps come from the tokens").first
    assert shown == [page.evaluate(f"pageData.methods['{name}'].title"), METHODS["type3"].title]
    assert note.is_visible() == (encode.steps != "fixed")
    r = {"retnet": 1 - 2**-5, "lrpe-d": 1 - 2**-1.5}.get(name, 1)
    check_agreement(page, "encodingOf(choiceOf(panels[0].form), 8)", encode, r, "apart")
    page.close()


def test_a_wished_kernel_is_drawn_beside_the_angles_that_match_it(browser, tmp_path, monkeypatch):
    monkeypatch.setattr("lrpe.lab.report.explorer.page.COUNTS", [8, 32])  # each number of angles takes half a second
    page = opened(browser, write_explorer(tmp_path / "explorer.html", kernels=["gaussian:16"]), "light")
    assert page.locator("#panels .title").all_inner_texts() == ["Type 2 for gaussian:16", "Type 2"]
    for dim, matrix, count in ((8, "unitary", 8), (64, "orthogonal", 32)):
        choice = {
            "name": "composed",
            "basis": "cosine",
            "matrix": matrix,
            "angles": "gaussian:16",
            "seed": 0,
            "fade": 25,
        }
        written = f"wishErrors(besideWish(encodingOf({choice}, {dim}), pageData.wishes['gaussian:16'].values))"
        matched = matching(gaussian(16), count, 256)
        found = page.evaluate(written)
        assert found["error"] == pytest.approx(matched.error, abs=1e-9)
        assert found["largest"] == pytest.approx(matched.largest_error, abs=1e-9)
    says = page.locator("#wish .says").all_inner_texts()
    assert says[0].startswith(f"gaussian:16: error {matched.error:.2g}")
    assert says[1] != says[0]
    assert not page.locator("[name=length]").first.is_visible()
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / "explorer-wish.png", full_page=True)
    assert page.said == []
    page.close()


@pytest.mark.parametrize(
    ("basis", "matrix", "angles"),
    [("backwards", "orthogonal", "golden"), ("cosine", "shift", "geometric"), ("backwards", "shift", "golden")],
)
def test_the_browser_draws_what_was_registered_as_the_library_computes_it(registered, basis, matrix, angles):
    page, _ = registered
    for dim in (8, 64):
        encode = encoding(f"{basis}*{matrix}", dim, angles=angles, length=2**LENGTH)
        choice = {"name": "composed", "basis": basis, "matrix": matrix, "angles": angles}
        choice |= {"base": BASE, "length": LENGTH, "seed": 0, "fade": 10}
        check_agreement(page, f"encodingOf({choice}, {dim})", encode, 1 - 2**-5, "apart")


def test_a_registered_factor_can_be_chosen_and_the_page_goes_on(registered):
    page, model = registered
    panel = page.locator("details").first
    panel.locator("[name=basis]").select_option("backwards")
    page.wait_for_function("document.querySelector('summary .title').textContent === 'Type 2, P backwards'")
    panel.locator("[name=matrix]").select_option("shift")
    page.wait_for_function("document.querySelector('summary .title').textContent === 'Λ shift, P backwards'")
    assert panel.get_by_text("matrices that Python computed").is_visible()
    assert not panel.locator("[name=angles]").is_visible()
    panel.locator("[name=matrix]").select_option("unitary")
    panel.locator("[name=angles]").select_option("golden")
    page.wait_for_function("document.querySelector('summary .title').textContent.endsWith('α golden')")
    panel.locator("[name=name]").select_option("learned 0 1")
    page.wait_for_function("document.querySelector('summary .title').textContent.includes('layer 1')")
    check_agreement(
        page, "encodingOf({ name: 'learned 0 1', head: 0 }, 64)", model.model.layers[1].attention.encoding.double(),
        model.model.layers[1].attention.decay.r[0].item(), "apart",
    )  # fmt: skip
    assert page.said == []


def check_agreement(page, written, encode, r, content):
    """Features, scores, kernel, envelope, spectrum and Δ in JavaScript beside those of the library, in float64."""
    got = page.evaluate(COMPUTE % (written, content, POSITIONS))
    q, k = (torch.tensor(got[name], dtype=torch.float64) for name in "qk")
    close(got["features"], encode(q.expand(len(POSITIONS), -1), torch.tensor(POSITIONS)))

    n = 12
    s = torch.arange(n, dtype=torch.float64)
    scores = r ** (s - s[:, None]).abs() * (encode(q.expand(n, -1)) @ encode(k.expand(n, -1)).mT)
    close(got["scores"], scores)
    close([point["value"] for point in got["kernel"]], torch.cat([scores[:, 0].flip(0), scores[0, 1:]]))
    assert all(abs(point["value"]) <= point["envelope"] + 1e-12 for point in got["kernel"])

    found = torch.tensor(
        [complex(value["re"], value["im"]) / r for value in got["eigenvalues"]], dtype=torch.complex128
    )
    powers = torch.stack([encode.matrix.dense(s).trace() for s in range(1, len(found) + 1)])  # as of W_s, for any P
    assert len(found) == encode.head_dim
    close(torch.view_as_real(sums_of_powers(found)).tolist(), torch.view_as_real(powers))

    size, most = q.norm() * k.norm(), (r**s).cumsum(0)
    close([delta["encoded"] for delta in got["deltas"]], scores[-1].flip(0).cumsum(0) / size / most)
    close([delta["plain"] for delta in got["deltas"]], (q @ k / size).expand(n))


def sums_of_powers(values):
    """Σ z, Σ z², ..., which fix the numbers z."""
    return torch.stack([(values**s).sum() for s in range(1, len(values) + 1)])


COMPUTE = """() => {
  const encoding = %s;
  const [q, k] = contents.%s(encoding.dim, { draw: 5 });
  return {
    q, k,
    features: features(encoding, q, %s),
    scores: scores(encoding, q, k, 12),
    kernel: kernel(encoding, q, k, range(23).map((m) => m - 11)),
    eigenvalues: eigenvalues(encoding, q, k),
    deltas: deltas(encoding, q, k, 12),
  };
}"""


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (1, 3)])
def test_a_layer_of_a_run_is_shown_as_the_run_learned_it(page, run, layer, head):
    attention = run[1].model.layers[layer].attention
    written = f"encodingOf({{ name: 'learned 0 {layer}', head: {head} }}, 64)"
    got = page.evaluate(COMPUTE % (written, "apart", POSITIONS))
    q = torch.tensor(got["q"], dtype=torch.float64)
    close(got["features"], attention.encoding(q.expand(1, 4, len(POSITIONS), -1), torch.tensor(POSITIONS))[0, head])
    assert page.evaluate(written)["decay"] == attention.decay.r[head]


def test_names_colours_and_parts_go_together(browser, file):
    page = opened(browser, file, "light")
    panel, title = page.locator("details").first, page.locator("summary .title").first
    for name, shown in (("rope", "RoPE"), ("type1", "Type 1"), ("none", "no positions"), ("cosformer", "cosFormer")):
        panel.locator("[name=name]").select_option(name)
        page.wait_for_function("shown => document.querySelector('summary .title').textContent === shown", arg=shown)
        assert panel.evaluate("element => element.style.getPropertyValue('--colour')") == LOOKS[name].colour
    panel.locator("[name=matrix]").select_option("orthogonal")
    assert panel.locator("[name=name]").input_value() == "composed"  # constant angles, which RoPE has not
    panel.locator("[name=angles]").select_option("geometric")
    assert panel.locator("[name=name]").input_value() == "rope"
    panel.locator("[name=basis]").select_option("cosine")
    page.wait_for_function("document.querySelector('summary .title').textContent === 'Type 2, P cosine'")
    panel.locator("[name=name]").select_option("learned 0 1")
    page.wait_for_function("document.querySelector('summary .title').textContent.includes('layer 1')")
    assert not panel.locator("[name=basis]").is_visible()
    assert panel.locator("[name=head]").is_visible()
    assert title.text_content() == "Type 2, layer 1, head 0 of small"
    assert page.said == []
    page.close()


@pytest.mark.parametrize("name", ["<!--<script>", "<SCRIPT>harmed = 1</SCRIPT>", "code /* code */ <!-- version -->"])
def test_a_run_with_a_nasty_name_is_shown_by_its_name(browser, run, tmp_path, name):
    told = read_run(run[0])
    nasty = told | {"title": name, "layers": [layer | {"run": name} for layer in told["layers"]]}
    page = opened(browser, write_explorer(tmp_path / "explorer.html", [nasty]), "light")
    page.locator("[name=name]").first.select_option("learned 0 0")
    page.wait_for_function("name => document.querySelector('summary .title').textContent.endsWith(name)", arg=name)
    assert page.locator("optgroup").first.get_attribute("label") == name
    assert page.evaluate("window.harmed") is None
    assert page.evaluate("document.querySelectorAll('main canvas').length") == PICTURES
    assert page.said == []
    page.close()


def test_each_picture_is_explained_and_leads_to_its_equation(page):
    for place in (*PLACES, "tokens"):
        section = page.locator(f"#{place}")
        assert len(section.locator("p").first.text_content()) > 60
        links = section.locator("a").evaluate_all("links => links.map((a) => a.getAttribute('href'))")
        assert links
        assert all(page.locator(f"{link} + dd code").count() for link in links)


def test_every_input_has_a_label_and_every_picture_is_told_in_words(page):
    assert page.evaluate("[...document.querySelectorAll('select, input')].every((input) => input.labels.length)")
    told = page.locator(".place").evaluate_all("places => places.map((place) => place.ariaLabel)")
    assert len(told) == PICTURES
    assert all("Type" in words and words.count(".") >= 2 for words in told)


def test_the_keyboard_is_seen_where_it_is(browser, file):
    page = opened(browser, file, "phone")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    assert outline == "solid"
    page.keyboard.press("Enter")
    assert page.locator("[name=base]").first.is_visible()
    page.close()


def test_a_page_turned_dark_is_drawn_anew(browser, file):
    page = opened(browser, file, "light")
    before = drawn(page)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("before => picturesNow().join() !== before", arg=before)
    assert page.said == []
    page.close()


def test_the_scores_in_the_browser_obey_definition_3_1(page):
    words = page.locator("#scores .says").all_text_contents()
    exponents = [words.split("10⁻")[1].rstrip(".") for words in words]
    assert all(int(exponent.translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789"))) >= 12 for exponent in exponents)
