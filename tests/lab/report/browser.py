"""A real browser for the tests: Debian's Chromium, driven by Playwright; nothing is downloaded."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest

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
