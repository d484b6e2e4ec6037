"""Schemas of a registry that speaks Confluent's REST API.

A schema never changes under its id, so what was found is kept for ever; an id that there
is no schema for is asked for again after half a minute.  A registry that is away is
waited for: only its own word that it has no such schema makes a record unreadable, and
only once it has been seen to be a registry at all, since a wrong path also answers
"not found".
"""

import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec

from ikebana.codecs.avro import SchemaUnknown, self_contained
from ikebana.errors import AwayError, ConfigError, SourceError
from ikebana.processor.kafka.client import PATIENCE_S

Result = TypeVar("Result")

_REQUEST_S = 10.0
# How long an id stays unknown: it may be a registry's replica that is behind, and a topic
# full of what is no Avro must not become as many requests.
_UNKNOWN_S = 30.0
_MOST_UNKNOWN = 10_000
_NOT_FOUND = 404
# A busy server, or a proxy before one that is away.
_LATER = frozenset({408, 429, 500, 502, 503, 504})
_REFUSED = frozenset({401, 403})
# The client takes these as numbers only.
_NUMBERS = frozenset(
    {
        "cache.capacity",
        "cache.latest.ttl.sec",
        "max.retries",
        "retries.max.wait.ms",
        "retries.wait.ms",
        "timeout",
    }
)


class Registry:
    """Writers' schemas by id: a number, or a GUID as text."""

    def __init__(self, settings: Mapping[str, str], patience_s: float = PATIENCE_S) -> None:
        """Take the settings of confluent_kafka's client, among them `url`.

        Raises:
            ConfigError: the client, or what it needs, is not installed, or it refuses a
                setting.
        """
        try:
            # An extra of confluent-kafka, which only topics in Avro need.
            from confluent_kafka.schema_registry import SchemaRegistryClient
            from confluent_kafka.schema_registry.common._httpx_compat import httpx
            from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError
        except ImportError as error:
            raise ConfigError(
                f"cannot use a schema registry: {error.name} is not installed",
                hint='Install "confluent-kafka[schemaregistry]".',
            ) from error
        # Whoever is named in a URL stays out of messages.
        self._what = f"the schema registry at {re.sub('//[^/,]*@', '//', settings.get('url', ''))}"
        self._patience_s = patience_s
        self._answered: Any = SchemaRegistryError
        self._away = (httpx.TransportError, OAuthTokenError)
        try:
            numbers = {name: float(value) for name, value in settings.items() if name in _NUMBERS}
            # It would wait for as long as a second between tries; the waiting is ours.
            self._client = SchemaRegistryClient(
                {"timeout": _REQUEST_S, **settings, **numbers, "max.retries": 0}
            )
        except (OSError, TypeError, ValueError) as error:
            raise ConfigError(
                f"cannot make a client of {self._what}: "
                f"{type(error).__name__ if '://' in str(error) else error}",
                hint="Check the settings of the schema registry.",
            ) from error
        self._schemas: dict[int | str, object] = {}
        self._unknown: dict[int | str, tuple[float, str]] = {}
        self._seen = False

    def reach(self) -> None:
        """See that there is a registry and that it lets us in.

        Raises:
            SourceError: it is away, refuses us, or is something else.
        """
        self._see()

    def parsed(self, id: int | str) -> object:  # noqa: A002 -- as in `Schemas`
        if (found := self._schemas.get(id)) is not None:
            return found
        until, reason = self._unknown.get(id, (0.0, ""))
        if time.monotonic() < until:
            raise SchemaUnknown(reason)
        try:
            found = self._schemas[id] = self._fetched(id)
        except SchemaUnknown as unknown:
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[id] = (time.monotonic() + _UNKNOWN_S, unknown.reason)
            raise
        return found

    def _fetched(self, schema_id: int | str) -> object:
        if isinstance(schema_id, str):
            schema = self._patiently(lambda: self._client.get_schema_by_guid(schema_id))
        else:
            schema = self._patiently(lambda: self._client.get_schema(schema_id))
        if schema is None:
            raise SchemaUnknown
        references: dict[tuple[str, int], Any] = {}
        self._refer(schema, references)
        return self_contained(_avro(schema), list(references.values()))

    def _refer(self, schema: Any, found: dict[tuple[str, int], Any]) -> None:
        """Add what a schema refers to, each after what that refers to itself."""
        for reference in schema.references or ():
            subject, version = reference.subject, reference.version
            if (subject, version) in found:
                continue
            # One that was deleted meanwhile still says what the bytes mean.
            registered = self._patiently(
                partial(self._client.get_version, subject, version, deleted=True)
            )
            if registered is None:
                raise SchemaUnknown("its schema refers to one that is unknown")
            self._refer(registered.schema, found)
            found[subject, version] = _avro(registered.schema)

    def _patiently(self, ask: Callable[[], Result]) -> Result | None:
        """Ask until there is an answer; None if it is that there is no such thing."""
        deadline = time.monotonic() + self._patience_s
        pause_s = 0.05
        while True:
            try:
                answer = ask()
            except self._answered as error:
                status = error.http_status_code
                if status == _NOT_FOUND:
                    if not self._seen:
                        self._see()
                    return None
                if status not in _LATER:
                    raise self._refusal(status) from error
                fact, cause = f"it answers with HTTP status {status}", error
            except self._away as error:
                fact, cause = str(error) or type(error).__name__, error
            except ValueError as error:
                raise self._no_registry("its answer is no JSON") from error
            else:
                self._seen = True
                return answer
            if time.monotonic() > deadline:
                raise AwayError(
                    f"could not reach {self._what} for {self._patience_s:.0f} s: {fact}",
                    hint="Check the registry's url and that it is up.",
                ) from cause
            time.sleep(pause_s)
            pause_s = min(1.0, pause_s * 2)

    def _see(self) -> None:
        """Make sure that it is a registry who says that something is not there."""
        self._seen = True
        if self._patiently(self._client.get_schema_types) is None:
            self._seen = False
            raise self._no_registry("it knows no schema types")

    def _refusal(self, status: int) -> SourceError:
        why = "refuses us" if status in _REFUSED else "does not serve schemas"
        return SourceError(
            f"cannot read from {self._what}: it {why}, HTTP status {status}",
            hint="Check the registry's url, and the user or token that is given for it.",
        )

    def _no_registry(self, fact: str) -> SourceError:
        return SourceError(
            f"cannot read from {self._what}: {fact}",
            hint="Check the registry's url; Apicurio's ends with /apis/ccompat/v7.",
        )


def _avro(schema: Any) -> Any:
    if (schema.schema_type or "AVRO") != "AVRO":
        raise SchemaUnknown("its schema is no Avro schema")
    try:
        return msgspec.json.decode(schema.schema_str)
    except msgspec.MsgspecError:
        # The registry gives a schema that is one name, such as "string", without quotes too.
        return schema.schema_str
