"""Which compiled modules cannot be used, so that their Python forms run instead."""

# Decision (Python says what is right): Modules are optional extensions, and without a compiler
# all runs in Python with the same results. The Python form is the reference and is never removed;
# forms between the two were.

from importlib.util import find_spec

PARTS = (
    "arranged",
    "avro_text",
    "data",
    "half_join",
    "joins",
    "json_text",
    "kafka_records",
    "merging",
    "nesting",
    "picking",
    "placing",
    "putting_together",
    "recent",
    "row_images",
    "taking_apart",
    "upserts",
)


def absent() -> list[str]:
    """List the parts that were not built, or are switched off."""
    return [part for part in PARTS if not _is_there(part)]


def _is_there(part: str) -> bool:
    try:
        return find_spec(f"ikebana.compiled._{part}") is not None
    except ImportError:
        return False
