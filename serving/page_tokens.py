"""Tokens of pages: where a scan or a reading of changes goes on, and in which topic."""

import base64
import binascii

import msgspec

from ikebana.errors import ConfigError
from ikebana.serving.layout import Meta
from ikebana.serving.view import CollectionView, UnreadableTimeError


class Place(msgspec.Struct, array_like=True, frozen=True):
    """A place in a scan or in changes, as page tokens have it."""

    times: tuple[int, int]
    bounds: tuple[bytes | None, bytes | None, bytes | None]
    subject: bytes = b""
    part: tuple[int, int] = (0, 0)
    topic: str | None = None
    """The id of the topic that is read; None in tokens of versions that did not tell."""


class _OfTopic(msgspec.Struct):
    """What is read of the place in a topic that an arrangement has."""

    topic_id: str | None = None


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Place).decode
_of_topic = msgspec.json.Decoder(_OfTopic).decode


def token(place: Place) -> str:
    """Write a place as a token."""
    return base64.urlsafe_b64encode(_pack(place)).decode().rstrip("=")


def place(text: str) -> Place:
    """Read the place of a token.

    Raises:
        ConfigError: it is no token.
    """
    try:
        return _unpack(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise unplaced() from error


def unplaced() -> ConfigError:
    """Make the error for a token that is none."""
    return ConfigError("cannot read a page: its token is none that was given out")


def topic_id(meta: Meta) -> str | None:
    """Return the id of the topic that a collection is read from; None if it is not known yet."""
    try:
        return _of_topic(meta.position).topic_id
    except msgspec.MsgspecError:
        return None


def same_topic(view: CollectionView, known: str | None) -> None:
    """Refuse to go on in another topic than that of a token, if both are known.

    Raises:
        UnreadableTimeError: the topic was made anew, so its times are others.
    """
    meta = view.meta
    if known is None or (found := topic_id(meta)) is None or found == known:
        return
    raise UnreadableTimeError(
        f'cannot go on reading "{meta.topic}": the topic was deleted and made anew since',
        "Begin anew, without the token.",
        meta.since,
        meta.upper,
        is_past=True,
    )
