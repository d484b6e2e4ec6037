"""The answers to the console of a run: its figures, their past, its plan, edits and records.

None has data, but for `/v1/records`, which reads a record that was noted, and `/v1/columns`, which
names the columns of the newest records: both only for who sends a token that may see everything.
"""

import base64
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol
from urllib.parse import parse_qs

import msgspec

from ikebana.errors import IkebanaError
from ikebana.processor.proposing.columns_seen import ColumnsSeen
from ikebana.processor.rows.noted import Place

# As much of a key and of a value is shown.
_MOST_BYTES = 64 * 1024
_BEARER = "Bearer "


class Found(Protocol):
    """A record that was found."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def value(self) -> bytes | None:
        """Its value."""


class Looking(NamedTuple):
    """How records are looked at: who may, by their tokens, and what reads them.

    `read` reads the record of a place, and `columns` compares the columns of the newest records
    of an input with those that it declares; None if there is no such input.
    """

    may: Callable[[str], bool]
    read: Callable[[Place], Found | None]
    columns: Callable[[str], ColumnsSeen | None]


class Answer(NamedTuple):
    """A status and JSON."""

    status: int
    body: bytes


class Shown(msgspec.Struct):
    """The key and the value of a record in base64, as far as they are shown; `gone` without."""

    gone: bool
    key: str | None = None
    value: str | None = None
    key_bytes: int = 0
    value_bytes: int = 0


class ConsoleAnswers:
    """Answers requests by their paths."""

    def __init__(
        self,
        reads: Mapping[str, Callable[[], object]],
        has: Callable[[Place], bool],
        looking: Looking | None,
    ) -> None:
        """`reads` are what makes the answers without data; `has` is of the records noted."""
        self._reads = reads
        self._has = has
        self._looking = looking

    def answer(self, path: str, query: str, authorization: str) -> Answer | None:
        """Answer a request; None if there is no such path."""
        if (look := _LOOKS.get(path)) is not None:
            return self._looked(look, query, authorization)
        read = self._reads.get(path)
        return None if read is None else Answer(200, msgspec.json.encode(read()))

    def _looked(self, look: "_Look", query: str, authorization: str) -> Answer:
        if self._looking is None:
            return _refusal(
                403, "this run shows no records", "Start it with --token-file to look at them."
            )
        token = authorization.removeprefix(_BEARER)
        if token == authorization or not self._looking.may(token):
            return _refusal(401, "a token is needed that may see everything", "")
        given = {name: values[0] for name, values in parse_qs(query).items()}
        try:
            return look(self, self._looking, given)
        except IkebanaError as error:
            return _refusal(502, error.message, error.hint or "")

    def _record(self, looking: Looking, given: Mapping[str, str]) -> Answer:
        place = _place(given)
        if place is None or not self._has(place):
            return _refusal(404, "no record of this place is noted any more", "")
        return Answer(200, msgspec.json.encode(_shown(looking.read(place))))

    def _columns(self, looking: Looking, given: Mapping[str, str]) -> Answer:
        found = looking.columns(given.get("input", ""))
        if found is None:
            return _refusal(404, "there is no such input", "")
        return Answer(200, msgspec.json.encode(found))


_Look = Callable[[ConsoleAnswers, Looking, Mapping[str, str]], Answer]
_LOOKS: Mapping[str, _Look] = {
    "/v1/records": ConsoleAnswers._record,
    "/v1/columns": ConsoleAnswers._columns,
}


def _place(given: Mapping[str, str]) -> Place | None:
    try:
        return given["topic"], int(given["partition"]), int(given["offset"])
    except (KeyError, ValueError):
        return None


def _shown(found: Found | None) -> Shown:
    if found is None:
        return Shown(gone=True)
    return Shown(
        gone=False,
        key=_base64(found.key),
        value=_base64(found.value),
        key_bytes=len(found.key or b""),
        value_bytes=len(found.value or b""),
    )


def _base64(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw[:_MOST_BYTES]).decode()


def _refusal(status: int, error: str, hint: str) -> Answer:
    told = {"error": error, "hint": hint} if hint else {"error": error}
    return Answer(status, msgspec.json.encode(told))
