"""Checks before a start, and notices about probable mistakes in a run that goes on.

A check has a result and a remedy.  A notice holds as long as its statement is true: the terminal
prints each once; `/ready`, the console and the metrics show the present ones.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from ikebana.errors import IkebanaError

CheckStatus = Literal["ok", "failed", "unknown", "warning"]
"""After a warning a start goes on, although there is probably a mistake."""


class Check(msgspec.Struct, frozen=True):
    """The subject of a check, its status, the fact behind that, and a remedy."""

    check: str
    status: CheckStatus
    fact: str = msgspec.field(name="told")
    remedy: str = ""


def checked(what: str, look: Callable[[], str]) -> Check:
    """Run a check: ok with the text that `look` returns, failed if it raises an error."""
    try:
        return Check(what, "ok", look())
    except IkebanaError as error:
        return refused(what, error)


def refused(what: str, error: IkebanaError) -> Check:
    """Make a failed check from an error."""
    return Check(what, "failed", error.message, error.hint or "")


NoticeKind = Literal["column", "new column", "errors", "json text", "envelope", "topic", "times"]
"""What a notice is about.

* `column`: no message has a declared column, or a field of one.
* `new column`: messages have a column that is not declared, and that earlier ones did not have.
* `errors`: every message of an input is an error.
* `json text`: a path goes into a text that holds JSON, and is null.
* `envelope`: messages are Kafka Connect's `{"schema", "payload"}`, and are read as plain JSON.
* `topic`: an input topic is not there yet.
* `times`: inputs have times of different kinds, so no time of all of them is closed.
"""
KINDS: tuple[NoticeKind, ...] = get_args(NoticeKind)


class Notice(msgspec.Struct, frozen=True):
    """A notice about an input: `words` name the object, its place and the remedy.

    `of` is the object: a column or a topic.  Kind, input and `of` identify a notice.  `names`
    continues the words with column names from messages, for readers who may see these.
    """

    kind: NoticeKind
    input: str
    of: str
    words: str
    names: str = ""

    @property
    def line(self) -> str:
        """The whole text."""
        return self.words + self.names

    @property
    def name(self) -> tuple[NoticeKind, str, str]:
        """The identity of the notice; its words may change while it holds."""
        return self.kind, self.input, self.of


class Board:
    """The present notices, by their author; every method is thread-safe.

    `tell` gets all of them whenever they change.
    """

    def __init__(self, tell: Callable[[Sequence[Notice]], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._by: dict[str, tuple[Notice, ...]] = {}

    def put(self, by: str, notices: Sequence[Notice]) -> None:
        """Replace the notices of one author."""
        with self._lock:
            if self._by.get(by, ()) == (now := tuple(notices)):
                return
            self._by[by] = now
            self._tell([notice for each in self._by.values() for notice in each])


def counts(
    inputs: Sequence[str], notices: Sequence[Notice]
) -> Mapping[tuple[NoticeKind, str], int]:
    """Count the notices of each kind and input, also where there are none."""
    result = {(kind, name): 0 for kind in KINDS for name in inputs}
    for notice in notices:
        name = notice.kind, notice.input
        result[name] = result.get(name, 0) + 1
    return result
