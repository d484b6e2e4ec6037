"""What a signal does to a run depends on what there is to finish."""

import os
import signal
import threading

import pytest

from ikebana.processor.base.processes import Stopped, Stopping, on_signals
from support.waiting import patient


def test_a_signal_ends_a_run_that_has_not_begun() -> None:
    """It is known which one it was."""
    with pytest.raises(Stopped) as stopped, on_signals() as stopping:
        os.kill(os.getpid(), signal.SIGTERM)

    assert stopped.value.number == signal.SIGTERM
    assert stopping.asked


def test_a_run_that_has_begun_is_asked_first() -> None:
    """A second signal ends it at once, with the status of one that a signal has killed."""
    with on_signals() as stopping:
        stopping.finish_first()
        os.kill(os.getpid(), signal.SIGINT)
        assert stopping.asked
        with pytest.raises(SystemExit) as ended:
            os.kill(os.getpid(), signal.SIGINT)

    assert ended.value.code == 128 + signal.SIGINT


def test_between_two_starts_there_is_nothing_to_finish() -> None:
    """A pause before a restart ends with the first signal."""
    stopping = Stopping()
    stopping.finish_first()
    stopping.at_once()

    with pytest.raises(Stopped):
        stopping.signalled(signal.SIGTERM)


def test_what_is_of_no_use_unfinished_is_never_waited_for() -> None:
    """The demo's folder goes with it."""
    stopping = Stopping(patient=False)
    stopping.finish_first()

    with pytest.raises(Stopped):
        stopping.signalled(signal.SIGINT)


def test_what_answered_before_answers_again() -> None:
    """Signals are ours for the length of a block."""
    before = signal.getsignal(signal.SIGTERM)
    with on_signals():
        pass

    assert signal.getsignal(signal.SIGTERM) is before


def test_who_waits_is_told_in_another_thread() -> None:
    """A handler may interrupt what holds the lock that an event needs."""
    lock, told = threading.Lock(), threading.Event()

    def tell() -> None:
        with lock:
            told.set()

    with on_signals() as stopping, lock:
        stopping.finish_first(tell)
        os.kill(os.getpid(), signal.SIGTERM)

    assert told.wait(patient(20))
