"""The pictures of the documentation are those that its program draws."""

import re
import runpy
import xml.etree.ElementTree as ElementTree

import pytest

from support.doc_blocks import ROOT

PICTURES = runpy.run_path(str(ROOT / "docs" / "pictures.py"))["PICTURES"]
IMAGES = ROOT / "docs" / "images"


@pytest.mark.parametrize("name", PICTURES)
def test_a_stored_picture_is_what_is_drawn(name: str) -> None:
    """`python docs/pictures.py` writes them; each is a picture of XML with a title."""
    drawn = PICTURES[name]().svg()

    assert (IMAGES / f"{name}.svg").read_text() == drawn
    root = ElementTree.fromstring(drawn)
    assert root.find("{http://www.w3.org/2000/svg}title") is not None
    assert "prefers-color-scheme: dark" in drawn


@pytest.mark.parametrize("name", PICTURES)
def test_texts_lie_within_their_picture(name: str) -> None:
    """By their places; a letter is at most eight pixels wide."""
    root = ElementTree.fromstring(PICTURES[name]().svg())
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for each in root.iter("{http://www.w3.org/2000/svg}text"):
        x, length = float(each.attrib["x"]), 8 * len(each.text or "")
        left = {"start": x, "middle": x - length / 2, "end": x - length}[
            each.attrib["text-anchor"]
        ]
        assert left >= 0, each.text
        assert left + length <= width, each.text
        assert 0 < float(each.attrib["y"]) <= height, each.text


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_shown_on_a_page(name: str) -> None:
    """With words for who cannot see it."""
    names = ("README.md", "ARCHITECTURE.md")
    pages = [*(ROOT / name for name in names), *(ROOT / "docs").glob("*.md")]

    assert any(f"images/{name}.svg)" in page.read_text() for page in pages)


def test_the_recording_shows_what_the_readme_says() -> None:
    """`python docs/recordings.py` records it; an edit of the README needs it again."""
    svg = "{http://www.w3.org/2000/svg}"
    readme = (ROOT / "README.md").read_text()
    root = ElementTree.parse(IMAGES / "first-pipeline.svg").getroot()
    lines = [
        "".join(part.text or "" for part in (text, *text.findall(f"{svg}tspan")))
        for text in root.iter(f"{svg}text")
    ]
    commands = [
        "".join(part.text or "" for part in text)
        for text in root.iter(f"{svg}text")
        if text.get("class") == "command"
    ]

    pipeline = re.search(
        r"^```yaml\n(pipeline: first\n.*?)^```$", readme, re.DOTALL | re.MULTILINE
    )
    assert pipeline is not None
    assert set(pipeline[1].splitlines()) <= set(lines)
    for name in ("run", "follow", "snapshot", "check"):
        assert any(command.startswith(f"ikebana{name}") for command in commands), commands
    lasts = {each.attrib["dur"] for each in root.iter(f"{svg}animate")}
    assert len(lasts) == 1
    assert 20 < float(lasts.pop().removesuffix("s")) < 40
    assert "prefers-color-scheme: dark" in (IMAGES / "first-pipeline.svg").read_text()
