"""The site is built from docs/ with no warning, and fetches nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_site_is_built_without_a_warning_and_fetches_nothing(tmp_path):
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 12
    for page in pages:
        fetched = re.findall(r"<(?:script|img|link)[^>]*(?:src|href)=\"(https?://[^\"]+)", page.read_text("utf-8"))
        assert not fetched, (page.name, fetched)
    api = (tmp_path / "site" / "api" / "index.html").read_text("utf-8")
    for name in ("LinearAttention", "EncodingConfig", "LrpeConfig", "replace_rotary"):
        assert name in api, name
