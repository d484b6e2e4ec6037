"""Offset logs and commit records hold fingerprints of plans: they are the same in every version.

The stored file is `tests/golden/fingerprints.json`; IKEBANA_GOLDEN=write stores it anew, which
is right for a new pipeline, and never for one that is there.
"""

import json
import os
from pathlib import Path

import pytest

from ikebana import load
from support.doc_blocks import EXAMPLES, ROOT

GOLDEN = ROOT / "tests" / "golden"
STORED = GOLDEN / "fingerprints.json"
PIPELINES = (*EXAMPLES, *sorted((GOLDEN / "explain").glob("*.yaml")))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def stored() -> dict[str, str]:
    found: dict[str, str] = json.loads(STORED.read_text())
    return found


def test_the_fingerprint_of_every_pipeline_is_stored() -> None:
    """Those of the examples, and those of which the explanations are stored."""
    if os.environ.get("IKEBANA_GOLDEN") == "write":
        found = {name_of(path): load(path).plan().fingerprint() for path in PIPELINES}
        STORED.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")

    assert stored().keys() == {name_of(path) for path in PIPELINES}


@pytest.mark.parametrize("path", PIPELINES, ids=name_of)
def test_a_fingerprint_stays_as_it_was(path: Path) -> None:
    """If it does not, every running checkpoint of that pipeline is refused."""
    assert load(path).plan().fingerprint() == stored()[name_of(path)]
