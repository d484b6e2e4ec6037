"""The documentation site: all pages, all links, and nothing that is loaded from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import ikebana
from ikebana.processor.cli.main import cli
from support.doc_blocks import ROOT
from support.waiting import patient

pytestmark = pytest.mark.long

_SHOWN = re.compile(r'<(?:img|source) [^>]*(?:src|srcset)="([^"]*)"')
_LOADED = re.compile(r'<(?:script|img|iframe)[^>]* src="([^"]*)"|<link [^>]*href="([^"]*)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, made as `make docs` does: a link that leads nowhere is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"),
            *("-c", ROOT / "docs" / "site", "-d", folder / "trees"),
            *(ROOT / "docs", folder / "html"),
        ],
        capture_output=True,
        text=True,
        timeout=patient(200),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_page_is_there_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}

    docs = ROOT / "docs"
    shown = [*docs.glob("*.md"), *docs.glob("how-to/*.md")]
    assert {path.relative_to(docs).with_suffix("").as_posix() for path in shown} <= pages
    for path in site.rglob("*.html"):
        for script, sheet in _LOADED.findall(path.read_text()):
            assert "://" not in script + sheet, (path.name, script, sheet)


def test_every_picture_is_there(site: Path) -> None:
    """Also those of `<picture>`, whose files Sphinx does not know."""
    shown = [
        (path, picture)
        for path in site.rglob("*.html")
        for picture in _SHOWN.findall(path.read_text())
    ]

    assert {"images/console-dark.webp", "_images/upserts.svg"} <= {name for _, name in shown}
    assert [name for path, name in shown if not (path.parent / name).exists()] == []


def test_the_reference_has_all_commands_settings_and_names(site: Path) -> None:
    reference = site / "reference"
    commands = (reference / "commands.html").read_text()
    settings = (reference / "settings.html").read_text()
    python = (reference / "api.html").read_text()

    for name in cli.list_commands(click.Context(cli)):
        assert f">ikebana {name}<" in commands
    for path in ("inputs.&lt;name&gt;.event_time.lateness", "run.checkpoint", "run.shards"):
        assert path in settings
    for name in ikebana.__all__:
        assert f">{name}<" in python
    assert "GET /v1/collections/{name}/scan" in (reference / "http.html").read_text()


def test_the_search_knows_the_words_of_the_pages(site: Path) -> None:
    index = (site / "searchindex.js").read_text()

    for word in ("frontier", "arrang", "late", "tombston"):
        assert re.search(rf'\b{word}"?:', index), word
