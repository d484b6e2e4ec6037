"""Fetch schemas from a registry with Confluent's REST API, and register schemas of outputs.

The schema of an id never changes, so a schema that was found is cached for ever.  An id without
a schema is requested again after half a minute.  If the registry is away, requests are
repeated: only its own answer that it has no such schema makes a record unreadable.  That answer
counts only after the server has proved to be a registry, because a wrong path also answers
"not found".
"""

import re
import time
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import Any, TypeVar

import msgspec

from ikebana.codecs.avro_schema import SchemaUnknown, self_contained
from ikebana.codecs.protobuf import File, parsed_text
from ikebana.errors import AwayError, ConfigError, SourceError
from ikebana.processor.kafka.client import PATIENCE_S

Result = TypeVar("Result")

_REQUEST_S = 10.0
# How long an id stays unknown: the answer may come from a replica that is behind, but a topic
# full of messages that are no Avro must not cause as many requests.
_UNKNOWN_S = 30.0
_MOST_UNKNOWN = 10_000
_NOT_FOUND = 404
# A busy server, or a proxy before one that is away.
_LATER = frozenset({408, 429, 500, 502, 503, 504})
_REFUSED = frozenset({401, 403})
# The registry has refused a schema, as incompatible or as invalid.
_REFUSALS = frozenset({409, 422})
# The client accepts these settings only as numbers.
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
    """Looks up writers' schemas by id: a number, or a GUID as text."""

    def __init__(self, settings: Mapping[str, str], patience_s: float = PATIENCE_S) -> None:
        """Take the settings of confluent_kafka's client, among them `url`.

        Raises:
            ConfigError: the client or one of its dependencies is not installed, or the client
                refuses a setting.
        """
        try:
            # An extra of confluent-kafka, which only topics in Avro need.
            from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
            from confluent_kafka.schema_registry.common._httpx_compat import httpx
            from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError
        except ImportError as error:
            raise ConfigError(
                f"cannot use a schema registry: {error.name} is not installed",
                hint='Install "confluent-kafka[schemaregistry]".',
            ) from error
        # Messages must not show the user and password of a URL.
        self._what = f"the schema registry at {re.sub('//[^/,]*@', '//', settings.get('url', ''))}"
        self._patience_s = patience_s
        self._answered: Any = SchemaRegistryError
        self._schema = Schema
        self._away = (httpx.TransportError, OAuthTokenError)
        try:
            numbers = {name: float(value) for name, value in settings.items() if name in _NUMBERS}
            # Its own retries wait up to a second; we retry by ourselves.
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
        self._files: dict[int | str, Sequence[File]] = {}
        self._unknown: dict[int | str, tuple[float, str]] = {}
        self._seen = False

    def reach(self) -> None:
        """Check that the registry answers and accepts our credentials.

        Raises:
            SourceError: it is away, refuses us, or is no registry.
        """
        self._see()

    def parsed(self, id: int | str) -> object:  # noqa: A002 -- as in `Schemas`
        if (schema := self._schemas.get(id)) is not None:
            return schema
        schema = self._schemas[id] = self._unless_unknown(id, self._fetched)
        return schema

    def described(self, id: int | str) -> Sequence[File]:  # noqa: A002 -- as in `Descriptions`
        if (files := self._files.get(id)) is not None:
            return files
        files = self._files[id] = self._unless_unknown(id, self._fetched_files)
        return files

    def _unless_unknown(
        self,
        id: int | str,  # noqa: A002
        fetch: Callable[[int | str], Result],
    ) -> Result:
        """Fetch a schema, unless it was unknown a moment ago."""
        until, reason = self._unknown.get(id, (0.0, ""))
        if time.monotonic() < until:
            raise SchemaUnknown(reason)
        try:
            return fetch(id)
        except SchemaUnknown as unknown:
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[id] = (time.monotonic() + _UNKNOWN_S, unknown.reason)
            raise

    def register(self, subject: str, schema: str, kind: str) -> int:
        """Register a schema of a kind under a subject, unless it is there; return its id.

        Raises:
            ConfigError: the registry does not take it, such as for its compatibility.
        """
        schema_id = self._patiently(
            lambda: self._client.register_schema(subject, self._schema(schema, kind))
        )
        if schema_id is None:
            raise self._no_registry("it registers no schemas")
        return int(schema_id)

    def takes(self, subject: str, schema: str, kind: str) -> bool:
        """Whether the newest schema of a subject is compatible; without one, any schema is."""
        answer = self._patiently(
            lambda: self._client.test_compatibility(subject, self._schema(schema, kind))
        )
        return answer is not False

    def _fetched(self, schema_id: int | str) -> object:
        schema, references = self._with_references(schema_id)
        return self_contained(_avro(schema), [_avro(each) for _, each in references])

    def _fetched_files(self, schema_id: int | str) -> Sequence[File]:
        schema, references = self._with_references(schema_id, "serialized")
        return [*starmap(_file, references), _file(f"schema {schema_id}", schema)]

    def _with_references(
        self, schema_id: int | str, form: str | None = None
    ) -> tuple[Any, list[tuple[str, Any]]]:
        """A schema, and those that it refers to, by the names by which it does."""
        get = self._client.get_schema_by_guid if isinstance(schema_id, str) else None
        schema = self._patiently(partial(get or self._client.get_schema, schema_id, fmt=form))
        if schema is None:
            raise SchemaUnknown
        references: dict[tuple[str, int], tuple[str, Any]] = {}
        self._refer(schema, references, form)
        return schema, list(references.values())

    def _refer(
        self, schema: Any, references: dict[tuple[str, int], tuple[str, Any]], form: str | None
    ) -> None:
        """Add the references of a schema, each after its own references."""
        for reference in schema.references or ():
            subject, version = reference.subject, reference.version
            if (subject, version) in references:
                continue
            # A deleted schema still describes the bytes that were written with it.
            registered = self._patiently(
                partial(self._client.get_version, subject, version, deleted=True, fmt=form)
            )
            if registered is None:
                raise SchemaUnknown("its schema refers to one that is unknown")
            self._refer(registered.schema, references, form)
            references[subject, version] = reference.name, registered.schema

    def _patiently(self, ask: Callable[[], Result]) -> Result | None:
        """Ask until there is an answer; return None if the answer is "not found"."""
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
                if status in _REFUSALS:
                    raise ConfigError(
                        f"{self._what} does not take a schema: {error.error_message}",
                        hint="Compare it with the newest one of its subject, or set the "
                        "subject's compatibility.",
                    ) from error
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
        """Check that the server which answers "not found" is a registry."""
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


def _file(path: str, schema: Any) -> File:
    """A file of Protobuf, in its own form or, if the registry has no other, as a text."""
    if schema.schema_type != "PROTOBUF":
        raise SchemaUnknown("its schema is no Protobuf schema")
    try:
        return path, b64decode(schema.schema_str, validate=True)
    except ValueError:
        return path, parsed_text(path, schema.schema_str).SerializeToString()


def _avro(schema: Any) -> Any:
    if (schema.schema_type or "AVRO") != "AVRO":
        raise SchemaUnknown(f"its schema is no Avro schema, but {schema.schema_type}")
    try:
        return msgspec.json.decode(schema.schema_str)
    except msgspec.MsgspecError:
        # The registry may return a schema that is one name, such as "string", without quotes.
        return schema.schema_str
