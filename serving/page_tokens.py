"""Tokens as text, and page tokens: the place at which a scan or a read of changes continues."""

import base64
from typing import TypeVar

import msgspec

from ikebana.errors import ConfigError
from ikebana.serving.layout import Meta
from ikebana.serving.view import CollectionView, UnreadableTimeError

Token = TypeVar("Token", bound=msgspec.Struct)


class Place(msgspec.Struct, array_like=True, frozen=True):
    """A place in a scan or in changes, as page tokens have it."""

    times: tuple[int, int]
    bounds: tuple[bytes | None, bytes | None, bytes | None]
    subject: bytes = b""
    part: tuple[int, int] = (0, 0)
    topic: str | None = None
    """The id of the topic that is read; None if it was not known."""


class _OfTopic(msgspec.Struct):
    """The part of an arrangement's position that is read here: the topic's id."""

    topic_id: str | None = None


_pack = msgspec.msgpack.Encoder().encode
_of_topic = msgspec.json.Decoder(_OfTopic).decode


def text_of(token: msgspec.Struct) -> str:
    """Write a token as text that a URL may have."""
    return base64.urlsafe_b64encode(_pack(token)).decode().rstrip("=")


def read(text: str, kind: type[Token]) -> Token:
    """Read a token.

    Raises:
        ValueError: it is none of this kind.
    """
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


def token(place: Place) -> str:
    """Write a place as a token."""
    return text_of(place)


def place(text: str) -> Place:
    """Read the place of a token.

    Raises:
        ConfigError: it is no token.
    """
    try:
        return read(text, Place)
    except ValueError as error:
        raise unplaced() from error


def unplaced() -> ConfigError:
    """Make the error for a text that is no token."""
    return ConfigError("cannot read a page: its token is none that was given out")


def topic_id(meta: Meta) -> str | None:
    """Return the id of the topic that a collection is read from; None if it is not known yet."""
    try:
        return _of_topic(meta.position).topic_id
    except msgspec.MsgspecError:
        return None


def same_topic(view: CollectionView, topic: str | None) -> None:
    """Refuse to continue in another topic than the token's, if both ids are known.

    Raises:
        UnreadableTimeError: the topic was deleted and created again, so its times are others.
    """
    meta = view.meta
    if topic is None or (now := topic_id(meta)) is None or now == topic:
        return
    raise UnreadableTimeError(
        f'cannot go on reading "{meta.topic}": the topic was deleted and created again since',
        "Begin again, without the token.",
        meta.since,
        meta.upper,
        is_past=True,
    )
