"""The API server as a node speaks to it: JSON over HTTPS with a client certificate."""

import http.client
import json
import ssl
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Object = dict[str, Any]

_WATCH_S = 300


class ApiError(Exception):
    """The API server refused; `status` is of HTTP."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status} {body[:300]}")
        self.status = status


class KubeApi:
    """One connection a call: nothing is shared between threads."""

    def __init__(self, server: str, ca: Path, certificate: Path, key: Path) -> None:
        address = urllib.parse.urlparse(server)
        assert address.hostname is not None
        assert address.port is not None
        self.host, self.port = address.hostname, address.port
        self._context = ssl.create_default_context(cafile=str(ca))
        self._context.load_cert_chain(certificate, key)

    def get(self, path: str) -> Object:
        """Read."""
        return self._call("GET", path)

    def post(self, path: str, body: Object) -> Object:
        """Make."""
        return self._call("POST", path, body)

    def delete(self, path: str, body: Object) -> Object:
        """Delete."""
        return self._call("DELETE", path, body)

    def patch(self, path: str, body: Object, kind: str = "strategic-merge-patch") -> Object:
        """Change a part."""
        return self._call("PATCH", path, body, f"application/{kind}+json")

    def watch(self, path: str, version: str) -> Iterator[Object]:
        """Yield what happens to a collection from a version on, for some minutes."""
        asking = self._connection(_WATCH_S + 30)
        asking.request(
            "GET", f"{path}&watch=1&timeoutSeconds={_WATCH_S}&resourceVersion={version}"
        )
        answer = asking.getresponse()
        if answer.status != http.client.OK:
            raise ApiError(answer.status, answer.read().decode())
        for line in answer:
            if line.strip():
                yield json.loads(line)

    def _connection(self, timeout_s: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            self.host, self.port, context=self._context, timeout=timeout_s
        )

    def _call(
        self, method: str, path: str, body: Object | None = None, kind: str = "application/json"
    ) -> Object:
        asking = self._connection(30)
        try:
            asking.request(
                method,
                path,
                None if body is None else json.dumps(body),
                {"Content-Type": kind, "Accept": "application/json"},
            )
            answer = asking.getresponse()
            text = answer.read().decode()
        finally:
            asking.close()
        if answer.status >= http.client.MULTIPLE_CHOICES:
            raise ApiError(answer.status, text)
        found: Object = json.loads(text)
        return found
