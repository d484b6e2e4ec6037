"""Handlers of signals that a test has for a while."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def handled_by(number: int, handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """Let a function handle a signal, and afterwards what has handled it before.

    A test that wants an interrupt sets `signal.default_int_handler`, since a shell lets what it
    starts in the background ignore interrupts.
    """
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
