"""Requests over HTTP, and their answers, whatever their status."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from typing import Any, NamedTuple

from support.waiting import patient


class Answer(NamedTuple):
    """An answer as it came."""

    status: int
    headers: Message
    body: bytes


def answer(
    url: str,
    body: Any = None,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    trusting: ssl.SSLContext | None = None,
) -> Answer:
    """Ask for a page, or send JSON, perhaps with a token."""
    fields = dict(headers or {})
    if token is not None:
        fields["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, fields)
    try:
        with urllib.request.urlopen(request, timeout=patient(30), context=trusting) as found:
            return Answer(found.status, found.headers, found.read())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.headers, error.read())


def ask(url: str, token: str | None = None, **more: Any) -> tuple[int, str]:
    """Status and text of an answer."""
    found = answer(url, token=token, **more)
    return found.status, found.body.decode()


def ask_json(url: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
    """Status and JSON of an answer."""
    found = answer(url, body, token)
    return found.status, json.loads(found.body)
