"""The options that inputs may have, and the encodings of their columns."""

EMPTY_VALUES = ("tombstone", "error")
"""What a value of no bytes may be taken for; the first one unless the option is set."""


def full_encoding(kind: str, encoding: str) -> str:
    """An encoding in full: that of a decimal takes its scale from the type."""
    if encoding != "decimal":
        return encoding
    from ikebana.processor.linear.expressions import type_named

    scale = type_named(kind).partition(",")[2].rstrip(")")
    return f"decimal:{scale or 0}"
