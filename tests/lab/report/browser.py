"""A real browser for the tests: Debian's Chromium, driven by Playwright; nothing is downloaded."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest
import torch

SIZES = {"light": (1280, 900), "dark": (1280, 900), "phone": (390, 844)}
NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def open_browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        absent("Playwright is not installed: pip install playwright")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        absent(f"There is none of {', '.join(NAMES)} on this machine: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def absent(reason: str) -> NoReturn:
    """A missing browser skips the test, except where LRPE_REQUIRE_BROWSER says that there must be one."""
    if os.environ.get("LRPE_REQUIRE_BROWSER"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def opened(browser, file, kind):
    """The page once its pictures are drawn, with what it said and asked for in ``page.said`` and ``page.asked``."""
    width, height = SIZES[kind]
    scheme = "dark" if kind == "dark" else "light"
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.said, page.asked = [], []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(file.as_uri())
    page.evaluate("ready")
    return page


def close(got, expected):
    torch.testing.assert_close(torch.tensor(got, dtype=torch.float64), expected.detach(), rtol=0, atol=1e-9)
