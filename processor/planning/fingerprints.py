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
            # As it was before there was any.
            del source["metadata"]
        if (event := source["event_time"]) is not None:
            # They only decide how far the next batches go.
            del event["lateness_ms"], event["idle_ms"]
        # What it adds are columns.
        del source["on_new_column"]
    for operator in plain["operators"]:
        # It says what is so of the rows, and changes none.
        operator.pop("unique", None)
        if operator.get("loop", ...) is None:
            # Plans without one are as they were before there was any.
            del operator["loop"]
    for output in plain["outputs"]:
        # It affects messages only, not the collection.
        del output["tombstones"]
        # It says what may come next.
        del output["on_change"]
        # They are names in schemas.
        del output["subjects"], output["record"]
    # A batch that has failed on an error can be run again and record it: where it was committed
    # it had none.  Without errors that are written it would be another batch.
    if plain["on_error"] != "drop":
        plain["on_error"] = "record"
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()[:16]


def _function_name(value: Any) -> str:
    """The name of a step's function, the only value of a plan that is not data."""
    if not callable(value):
        raise TypeError(f"a plan holds a {type(value).__name__}")
    return name_of(value)
