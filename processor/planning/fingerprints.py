"""Fingerprints of plans, which identify them in offset logs and commit markers."""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from ikebana.processor.linear.functions import name_of

# A plan that does not use these keeps the fingerprint it had before they existed.
_ADDED_LATER = {"event_time", "function", "unique", "size", "total", "locked_by"}


def fingerprint(plan: object, of_event_time: Mapping[str, int]) -> str:
    """The fingerprint of a plan whose event times have these settings instead of their own."""
    plain = msgspec.to_builtins(plan, enc_hook=_function_name)
    for part in (*plain["inputs"], *plain["operators"]):
        for name in _ADDED_LATER & part.keys():
            if part[name] in (None, ()) or part[name] is False:
                del part[name]
        if "event_time" in part:
            part["event_time"].update(of_event_time)
    for operator in plain["operators"]:
        # It says what is so of the rows, and changes none.
        operator.pop("unique", None)
    for output in plain["outputs"]:
        # It affects messages only, not the collection.
        del output["tombstones"]
        # It says what may come next.
        del output["on_change"]
    for name in ("readings", "backfills"):
        if not plain[name]:
            del plain[name]
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
