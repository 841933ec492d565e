"""The explorer's row of tokens in a real browser: dragged steps and decays have the weights of the library."""

import pytest
import torch

from lrpe import encoding
from lrpe.lab.report.explorer.page import write_explorer
from tests.lab.report.browser import close, open_browser, opened

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser():
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_explorer(tmp_path_factory.mktemp("page") / "explorer.html", [])


@pytest.mark.parametrize("name", ["householder*unitary", "householder*orthogonal", "fourier*orthogonal"])
def test_dragged_tokens_have_the_weights_that_the_library_computes(browser, file, name):
    page = opened(browser, file, "light")
    choose(page, name)
    drag(page, "step", 4, 0.9)
    drag(page, "step", 9, 0.1)
    drag(page, "decay", 7, 0.2)
    page.locator("#token-row [name=decay]").nth(2).press("ArrowDown")
    got = tokens_drawn(page)
    q, k, u, r = (torch.tensor(got[key], dtype=torch.float64) for key in ("q", "k", "steps", "decays"))
    assert [t for t, step in enumerate(u) if step != 1] == [4, 9]
    assert [t for t, decay in enumerate(r) if decay != 1] == [2, 7]
    encode, c = encoding(name, 64, seed=0), r.log().cumsum(0)
    table = encode.phase_table(u.cumsum(0)[None, None], torch.float64)
    queries, keys = (encode(x.expand(1, 1, len(u), -1), table=table)[0, 0] for x in (q, k))
    close(got["weights"], (torch.exp(c[:, None] - c) * (queries @ keys.mT)).tril())
    assert "differ" in page.locator("#tokens .says").text_content()
    assert page.said == []
    page.close()


def choose(page, name):
    """Choose P and Λ of "P*Λ" in panel A, and q and k that differ."""
    for part, value in zip(("basis", "matrix"), name.split("*"), strict=True):
        page.locator(f"[name={part}]").first.select_option(value)
    page.locator("[name=content]").select_option("apart")


def drag(page, kind, token, to):
    """Drag a bar by the mouse to a part of its height, 0 to 1, and wait until the matrix is drawn anew."""
    bar = page.locator(f"#token-row [name={kind}]").nth(token)
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    before = page.locator("#tokens canvas").evaluate("canvas => canvas.toDataURL()")
    part = bar.evaluate("({ value, min, max }) => (value - min) / (max - min)")
    page.mouse.move(*point_on(box, part))
    page.mouse.down()
    page.mouse.move(*point_on(box, to), steps=3)
    page.mouse.up()
    page.wait_for_function("before => document.querySelector('#tokens canvas').toDataURL() !== before", arg=before)


def point_on(box, part):
    return box["x"] + box["width"] / 2, box["y"] + 3 + (1 - part) * (box["height"] - 6)  # the handle is 6 pixels high


def tokens_drawn(page):
    """Return the tokens and their weights once the picture shows them."""
    page.wait_for_function(DRAWN)
    return page.evaluate("weightsNow()")


DRAWN = """() => {
  window.weightsNow = () => {
    const { encoding, q, k } = seenIn(panels[0].form);
    return { q, k, ...tokensNow(), weights: weights(encoding, q, k, tokensNow()) };
  };
  const { scale } = seenIn(panels[0].form);
  const rows = weightsNow().weights.map((row) => row.map((weight) => weight / scale));
  const [{ image }] = tokenChart.view.data("matrix");
  return image.toDataURL() === matrixImage(rows, 1, colours).toDataURL();
}"""


def test_same_steps_give_definition_3_1_back(browser, file):
    page = opened(browser, file, "phone")
    drag(page, "step", 5, 0.8)
    drag(page, "decay", 5, 0.5)
    page.get_by_role("button", name="Same steps and decays").click()
    page.wait_for_function("document.querySelector('#tokens .says').textContent.includes('Definition 3.1')")
    got = tokens_drawn(page)
    assert {*got["steps"], *got["decays"]} == {1}
    W = torch.tensor(got["weights"], dtype=torch.float64)
    assert W[5, 4] != 0
    torch.testing.assert_close(W[1:, 1:], W[:-1, :-1], rtol=0, atol=1e-12)  # a Toeplitz matrix
    page.close()


def test_a_permutation_has_whole_steps_and_says_so(browser, file):
    page = opened(browser, file, "light")
    drag(page, "step", 3, 0.5)  # 1.5, which no permutation can take
    choose(page, "householder*permutation")
    page.wait_for_function("document.querySelector('#tokens .says').textContent.includes('whole steps')")
    drag(page, "step", 6, 0.9)
    got = tokens_drawn(page)
    steps = torch.tensor(got["steps"])
    assert got["steps"][6] == 3
    assert torch.equal(steps, steps.round())
    phases, encode = steps.cumsum(0).long(), encoding("householder*permutation", 64, seed=0)
    q, k = (encode(torch.tensor(got[x], dtype=torch.float64).expand(13, -1), phases) for x in "qk")
    close(got["weights"], (q @ k.mT).tril())
    page.close()


def test_decays_follow_the_panel_until_they_are_dragged(browser, file):
    page = opened(browser, file, "light")
    drag(page, "decay", 7, 0.5)
    mine = page.evaluate("tokensNow().decays[7]")
    page.locator("[name=fade]").first.press("Home")  # r = 1/2
    page.wait_for_function("tokensNow().decays[0] === 0.5")
    assert tokens_drawn(page)["decays"] == [0.5] * 7 + [mine] + [0.5] * 5
    page.close()
