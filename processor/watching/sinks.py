"""How the sinks of a pipeline stand, which run in processes of their own, beside it or elsewhere.

Each sink has a URL, where a thread asks it now and then; its last answer counts.  A sink
that does not answer, or has no process now, is not ready, and nothing else comes of that.
"""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping

import msgspec

from ikebana.processor.base.processes import Closes

_EVERY_S = 2.0
_WITHIN_S = 2.0
_MOST_BYTES = 64 * 1024


class SinkFigures(msgspec.Struct):
    """A sink: how it stands in words, and its own figures.

    `lag_s` is null if times are not milliseconds; `updates` is their number since its start, and
    `restarts` how often a run that started it has started it again.
    """

    ready: bool
    state: str
    frontier: int | None = None
    lag_s: float | None = None
    updates: int = 0
    behind: int = 0
    restarts: int = 0


Sinks = Callable[[], Mapping[str, SinkFigures]]


def no_sinks() -> Mapping[str, SinkFigures]:
    """A pipeline without sinks has none."""
    return {}


class SinkBoard(Closes):
    """Keeps how each sink stands; all methods are thread-safe."""

    def __init__(self, names: Iterable[str], *, every_s: float = _EVERY_S) -> None:
        self._every_s = every_s
        self._lock = threading.Lock()
        self._figures = {name: SinkFigures(ready=False, state="starting") for name in names}
        self._urls: dict[str, str] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="ikebana-sinks", daemon=True)
        if self._figures:
            self._thread.start()

    def at(self, name: str, url: str) -> None:
        """A sink answers at this URL from now on."""
        with self._lock:
            self._urls[name] = url

    def without(self, name: str, why: str, *, restarts: int = 0) -> None:
        """A sink has no process now; `restarts` is the number of those that there were."""
        with self._lock:
            self._urls.pop(name, None)
            last = self._figures[name]
            self._figures[name] = msgspec.structs.replace(
                last, ready=False, state=why, restarts=restarts
            )

    def figures(self) -> Mapping[str, SinkFigures]:
        """How each sink stands."""
        with self._lock:
            return dict(self._figures)

    def close(self) -> None:
        """Ask no more."""
        self._closing.set()
        if self._figures:
            self._thread.join()

    def _ask(self) -> None:
        while not self._closing.is_set():
            with self._lock:
                urls = dict(self._urls)
            for name, url in urls.items():
                answer = _answer(url)
                with self._lock:
                    # Its process may have ended meanwhile.
                    if self._urls.get(name) == url:
                        last = self._figures[name]
                        self._figures[name] = msgspec.structs.replace(last, **answer)
            self._closing.wait(self._every_s)


def _answer(url: str) -> dict[str, object]:
    """What a sink says of itself at its URL."""
    try:
        try:
            with urllib.request.urlopen(f"{url}/ready", timeout=_WITHIN_S) as answer:
                body = answer.read(_MOST_BYTES)
        except urllib.error.HTTPError as unready:
            body = unready.read(_MOST_BYTES)
        fields = json.loads(body)
        return {
            "ready": bool(fields["ready"]),
            "state": str(fields["reason"]),
            "frontier": fields["upper"],
            "lag_s": fields["lag_seconds"],
            "updates": int(fields["updates"]),
            "behind": int(fields["behind_offsets"]),
        }
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return {"ready": False, "state": f"does not answer at {url}: {reason}"}
