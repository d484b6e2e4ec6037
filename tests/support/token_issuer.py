"""A server that gives out tokens for OAUTHBEARER, to clients that know a secret."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

CLIENT, SECRET = "reader", "the secret"


class Issuer(NamedTuple):
    """The address that gives tokens, and whom they name."""

    url: str
    subject: str

    def settings(self, secret: str = SECRET) -> dict[str, str]:
        """What a Kafka client needs beside the brokers' address and certificate."""
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": secret,
            "sasl.oauthbearer.token.endpoint.url": self.url,
        }


@contextmanager
def issuing(subject: str, valid_s: int = 3600) -> Iterator[Issuer]:
    """Give out tokens of a subject during a `with` block; they are not signed."""

    class Tokens(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            known = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
            if self.headers.get("Authorization") != f"Basic {known}":
                self._answer(401, {"error": "invalid_client"})
            else:
                self._answer(200, {"access_token": _token(subject, valid_s)})

        def _answer(self, status: int, told: dict[str, str]) -> None:
            body = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Tokens)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Issuer(f"http://127.0.0.1:{server.server_port}/token", subject)
    finally:
        server.shutdown()
        server.server_close()


def _token(subject: str, valid_s: int) -> str:
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": subject, "iat": now, "exp": now + valid_s})
    written = (base64.urlsafe_b64encode(json.dumps(part).encode()) for part in parts)
    return ".".join(part.decode().rstrip("=") for part in written) + "."
