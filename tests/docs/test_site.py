"""The documentation builds as a site without broken links, and its pages load nothing from other servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.page import DOCS

pytest.importorskip("mkdocs")
README_WORDS = 900


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=DOCS.parent,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "BARNABAS_REPOSITORY": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.timeout(240)
def test_every_page_is_there(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("")
        assert (site / (name.parent if name.name == "index" else name) / "index.html").is_file(), name
    for generated in ("reference/cli", "project/changelog", "project/security-policy", "contributing"):
        assert (site / generated / "index.html").is_file()
    commands = (site / "reference" / "cli" / "index.html").read_text()
    assert "barnabas topic create" in commands
    assert "--replication-factor" in commands
    classes = (site / "reference" / "python" / "index.html").read_text()
    assert 'id="barnabas.testing.Cluster.akill"' in classes


@pytest.mark.timeout(240)
def test_a_page_loads_nothing_from_other_servers(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=\"?(https?:[^\" >]*)", page.read_text())
        loaded += re.findall(
            r"<link[^>]* rel=\"?(?:stylesheet|preconnect)\"?[^>]* href=\"?(https?:[^\" >]*)", page.read_text()
        )
        assert loaded == [], page


def test_the_readme_is_short() -> None:
    assert len((DOCS.parent / "README.md").read_text().split()) <= README_WORDS
