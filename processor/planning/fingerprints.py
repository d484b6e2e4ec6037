"""Fingerprints of plans, which identify them in offset logs and commit markers."""

import hashlib
from typing import Any

import msgspec

from ikebana.processor.linear.functions import name_of


def fingerprint(plan: object) -> str:
    """Hash a plan, without what may change between two runs of its batches."""
    plain = msgspec.to_builtins(plan, enc_hook=_function_name)
    for source in plain["inputs"]:
        if not source["metadata"]:
            # The default is left out, as in plans from before the field existed.
            del source["metadata"]
        if (event := source["event_time"]) is not None:
            # These only decide how far the next batches go.
            del event["lateness_ms"], event["idle_ms"]
        # It adds columns, which are hashed themselves.
        del source["on_new_column"]
        # Offsets have the position of reading in it.
        del source["history"]
    for operator in plain["operators"]:
        # It is a claim about the rows, and does not change them.
        operator.pop("unique", None)
        if operator.get("loop", ...) is None:
            # Plans without one hash as before the field existed.
            del operator["loop"]
    for output in plain["outputs"]:
        # It affects messages only, not the collection.
        del output["tombstones"]
        # It only limits later edits.
        del output["on_change"]
        # These are only names in schemas.
        del output["subjects"], output["record"]
    # A batch that failed on an error may be run again and record it; a committed batch had none.
    # Whether errors are written at all is hashed: it changes the batch.
    if plain["on_error"] != "drop":
        plain["on_error"] = "record"
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()[:16]


def _function_name(value: Any) -> str:
    """The name of a step's function, the only value of a plan that is not data."""
    if not callable(value):
        raise TypeError(f"a plan holds a {type(value).__name__}")
    return name_of(value)
