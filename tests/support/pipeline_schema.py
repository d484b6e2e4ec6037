"""The schema of the pipeline file, with the words of docs/pipeline-file.md."""

import json
import re

from ikebana.processor.authoring.schema import FILE, pipeline_schema
from support.doc_blocks import ROOT

PUBLISHED = ROOT / "docs" / FILE
_ROW = re.compile(r"^\| `([^`]+)` \|.*?\|.*?\| (.*) \|$", re.MULTILINE)
# The text of a link may be code with brackets of its own.
_LINK = re.compile(r"\[((?:`[^`]*`|[^]`])*)\]\([^)]*\)")


def described() -> dict[str, str]:
    """What the page says of each key."""
    page = (ROOT / "docs" / "pipeline-file.md").read_text()
    return {key: _LINK.sub(r"\1", meaning) for key, meaning in _ROW.findall(page)}


def generated() -> str:
    """The schema as it is stored."""
    return json.dumps(pipeline_schema(described()), indent=1, ensure_ascii=False) + "\n"
