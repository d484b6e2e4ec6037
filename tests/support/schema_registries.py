"""Schema registries for tests: a small one in memory, a real one behind it, and their readers."""

import json
import re
import urllib.error
import urllib.request
import uuid
from typing import Any

from ikebana.processor.kafka.registry import Registry


class SmallRegistry:
    """Subjects, versions, ids and GUIDs in memory; `answers` are given before all others."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.answers: list[tuple[int, bytes] | None] = []
        self._strict: set[str] = set()

    def post(self, path: str, given: dict[str, Any]) -> tuple[int, Any]:
        """What a request with a schema gets: its id, or whether it is compatible."""
        if found := re.fullmatch(r"/subjects/([^/]+)/versions", path):
            if found[1] in self._strict and not self._has(found[1], given):
                return 409, {
                    "error_code": 409,
                    "message": "Schema being registered is incompatible",
                }
            return 200, {"id": self.register(found[1], given)}
        if found := re.fullmatch(r"/compatibility/subjects/([^/]+)/versions/latest", path):
            if found[1] not in self.subjects:
                return 404, {"error_code": 40401, "message": "Subject not found."}
            strict = found[1] in self._strict
            return 200, {"is_compatible": not strict or self._has(found[1], given)}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def demand_compatible(self, subject: str) -> None:
        """Take no schemas but compatible ones; this one takes none but those that it has."""
        self._strict.add(subject)

    def _has(self, subject: str, given: dict[str, Any]) -> bool:
        return any(self.schemas[number] == given for number in self.subjects.get(subject, ()))

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """The id of a schema, which is new if the schema is."""
        for known, there in self.schemas.items():
            if there == schema:
                number = known
                break
        else:
            number = len(self.schemas) + 1
            self.schemas[number] = schema
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, path: str) -> tuple[int, Any]:
        """What a request for this path gets."""
        if path == "/schemas/types":
            return 200, ["AVRO"]
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            return self._schema(int(found[1]))
        if found := re.fullmatch(r"/schemas/guids/(.+)", path):
            return self._schema(uuid.UUID(found[1]).int)
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(\d+)", path):
            subject, version = found[1], int(found[2])
            if subject not in self.subjects:
                return 404, {"error_code": 40401, "message": "Subject not found."}
            number = self.subjects[subject][version - 1]
            return 200, {
                "subject": subject, "version": version, "id": number, **self.schemas[number]
            }  # fmt: skip
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _schema(self, number: int) -> tuple[int, Any]:
        if number in self.schemas:
            return 200, self.schemas[number]
        return 404, {"error_code": 40403, "message": f"Schema {number} not found"}


class RealRegistry(SmallRegistry):
    """A registry that runs elsewhere; subjects are those of a test alone."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """The id of a schema, which is new if the schema is."""
        status, told = self._asked(f"/subjects/{subject}/versions", json.dumps(schema).encode())
        assert status == 200, told
        return int(told["id"])

    def post(self, path: str, given: dict[str, Any]) -> tuple[int, Any]:
        """What a request with a schema gets."""
        return self._asked(path, json.dumps(given).encode())

    def demand_compatible(self, subject: str) -> None:
        """Take no schemas but compatible ones."""
        level = json.dumps({"compatibility": "BACKWARD"}).encode()
        status, told = self._asked(f"/config/{subject}", level, "PUT")
        assert status == 200, told

    def answer(self, path: str) -> tuple[int, Any]:
        """What a request for this path gets."""
        return self._asked(path, None)

    def _asked(self, path: str, data: bytes | None, method: str | None = None) -> tuple[int, Any]:
        kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        request = urllib.request.Request(self._url + path, data, kind, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)


class Served:
    """A registry and where it is."""

    def __init__(self, registry: SmallRegistry, url: str) -> None:
        self.registry = registry
        self.url = url

    def reading(self, **settings: str) -> Registry:
        """A reader of it that has half a minute of patience."""
        return Registry({"url": self.url, **settings}, 30)

    def register(self, subject: str, schema: Any, *references: Any) -> int:
        """Register a schema as producers do, by Confluent's client."""
        from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

        refers = [SchemaReference(*reference) for reference in references]
        text = schema if isinstance(schema, str) else json.dumps(schema)
        number: int = SchemaRegistryClient({"url": self.url}).register_schema(
            subject, Schema(text, "AVRO", refers)
        )
        return number
