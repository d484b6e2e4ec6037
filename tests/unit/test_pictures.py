"""The pictures of the documentation are those that its program draws."""

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
