"""What the tests of the formats have in common: stored messages, and what a codec makes of one."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ikebana.codecs.change import Change, Codec, DeclaredColumns, Needs
from ikebana.codecs.errors import DecodeError
from support.damaged_messages import MARKER


def declaring(columns: Sequence[str] | None, **rest: Any) -> Needs:
    """What is wanted where these columns are all that is declared, and all that is read."""
    declared = DeclaredColumns(dict.fromkeys(columns or (), "VARCHAR"))
    return Needs(None if columns is None else tuple(columns), declared=declared, **rest)


def golden(name: str) -> dict[str, bytes]:
    """The stored messages of a format, by their names."""
    folder = Path(__file__).parents[1] / "golden" / name
    return {path.stem: path.read_bytes() for path in sorted(folder.glob("*.json"))}


def changed_of(messages: Mapping[str, bytes], name: str, **fields: Any) -> bytes:
    """A stored message with other fields; one that is ... is left out."""
    message = {**json.loads(messages[name]), **fields}
    return json.dumps({n: v for n, v in message.items() if v is not ...}).encode()


def updated(
    key: bytes, after: bytes, before: bytes | None = None, absent: tuple[str, ...] = ()
) -> Change:
    """There was a row of this key before, by what the message says."""
    return Change("upsert", key, after, before, absent, replaces=True)


def deleted(key: bytes, before: bytes | None = None) -> Change:
    """So was there here."""
    return Change("delete", key, None, before, replaces=True)


def refusal_of(codec: Codec, name: str, message: bytes) -> DecodeError:
    """What the codec of this name raises for a message."""
    with pytest.raises(DecodeError) as caught:
        codec.changes(None, message, None)
    assert MARKER not in str(caught.value)
    assert caught.value.codec == name
    return caught.value
