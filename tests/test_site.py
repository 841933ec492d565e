"""The site is built from docs/ with no warning, fetches nothing from elsewhere, and typesets its mathematics."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lrpe import adapt, attention, encodings, models, theory
from tests.lab.report.browser import open_browser

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert "unrecognized relative link" not in done.stderr  # brackets of a formula that Markdown takes for a link
    return folder


def test_no_page_fetches_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 16
    for page in pages:
        fetched = re.findall(r"<(?:script|img|link)[^>]*(?:src|href)=\"(https?://[^\"]+)", page.read_text("utf-8"))
        assert not fetched, (page.name, fetched)


def test_every_public_name_is_on_one_page_of_the_api(site):
    pages = {page.stem: page.read_text("utf-8") for page in (site / "api").glob("*.html")}
    assert set(pages) == {"index", "encodings", "theory", "attention", "models", "adapt"}
    packages = (encodings, theory, attention, models, adapt)
    for name in {name for package in packages for name in package.__all__} | {"LrpeError", "parameter_groups"}:
        pattern = rf'<h[23] id="lrpe\.[\w.]*\.{name}" class="doc doc-heading"'
        assert sum(len(re.findall(pattern, text)) for text in pages.values()) == 1, name


@pytest.mark.parametrize("width", [1400, 390])
def test_formulas_are_typeset_from_the_sites_own_files(site, width):
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": width, "height": 900})
        asked, said = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        for name, least in (("mathematics", 60), ("choosing", 4), ("selective", 40), ("walk", 6), ("explorer", 6)):
            page.goto((site / f"{name}.html").as_uri())
            assert page.locator(".arithmatex .katex").count() == page.locator(".arithmatex").count() >= least
            assert page.locator(".katex-error").count() == 0
            assert page.evaluate("document.fonts.ready.then(() => document.fonts.check('16px KaTeX_Math'))")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert all(url.startswith(site.as_uri()) for url in asked)
        assert said == []
