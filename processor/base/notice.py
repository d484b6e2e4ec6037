"""Notices: what is probably not meant, in a run that goes on, and the board that they stand on.

A notice holds until what it says is no longer so.  The terminal says each once; `/ready`, the
console and the metrics show those that hold.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import msgspec

Kind = Literal["column", "new column", "errors", "json text", "envelope", "topic", "times"]
"""What a notice is about.

* `column`: no message has a declared column, or a field of one.
* `new column`: messages have a column that is not declared, and that earlier ones did not have.
* `errors`: every message of an input is an error.
* `json text`: a path goes into a text that holds JSON, and is null.
* `envelope`: messages are Kafka Connect's `{"schema", "payload"}`, and are read as plain JSON.
* `topic`: an input topic is not there yet.
* `times`: inputs have times of different kinds, so no time of all of them is closed.
"""
KINDS: tuple[Kind, ...] = get_args(Kind)


class Notice(msgspec.Struct, frozen=True):
    """What is noticed of an input: `words` have its name, its place and the remedy.

    `of` is what it is about: a column or a topic.  Kind, input and `of` name a notice.  `names`
    go on with the words, for who may see what messages have: they name columns of these.
    """

    kind: Kind
    input: str
    of: str
    words: str
    names: str = ""

    @property
    def line(self) -> str:
        """All that there is to say."""
        return self.words + self.names

    @property
    def name(self) -> tuple[Kind, str, str]:
        """What it is known by; its words may change while it holds."""
        return self.kind, self.input, self.of


class Board:
    """The notices that hold now, by who gives them; every method is thread-safe.

    `tell` gets all of them whenever they change.
    """

    def __init__(self, tell: Callable[[Sequence[Notice]], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._by: dict[str, tuple[Notice, ...]] = {}

    def put(self, by: str, notices: Sequence[Notice]) -> None:
        """Replace what one of those who give notices has given before."""
        with self._lock:
            if self._by.get(by, ()) == (now := tuple(notices)):
                return
            self._by[by] = now
            self._tell([notice for each in self._by.values() for notice in each])


def counts(inputs: Sequence[str], notices: Sequence[Notice]) -> Mapping[tuple[Kind, str], int]:
    """Count the notices of each kind and input, those without any among them."""
    found = {(kind, name): 0 for kind in KINDS for name in inputs}
    for notice in notices:
        name = notice.kind, notice.input
        found[name] = found.get(name, 0) + 1
    return found
