"""The threat model names what shows each of its claims."""

import re

from support.doc_blocks import ROOT

TEXT = (ROOT / "docs" / "security.md").read_text()


def test_each_claim_has_a_test_or_is_left_to_somebody() -> None:
    """And each test that is named is there."""
    section = TEXT.split("\n## Who may attack from where, and what stops them\n")[1].split(
        "\n## "
    )[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    for _, want, stops, shown, left in rows:
        named = re.findall(r"`(tests/[^`]+)`", shown)
        assert [path for path in named if not (ROOT / path).exists()] == [], want
        assert named or (stops.startswith("nothing") and left.strip(" |")), want


def test_the_policy_leads_to_it() -> None:
    """By headings that there are."""
    policy = (ROOT / "SECURITY.md").read_text()
    anchors = re.findall(r"docs/security\.md#([a-z-]+)", policy)
    assert len(anchors) == 2
    headings = {
        re.sub(r"[^a-z -]", "", line.lower()).strip().replace(" ", "-")
        for line in re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    }
    assert set(anchors) <= headings
