"""Watch calls of users' code: their functions, and statements of their SQL.

A call that does not return within `longest_s` is stopped, and its caller raises `StuckError`,
which names the operator, the function or expression, and the line.  It is no error record: the
duration of a call is no property of its data, so the same row might fail when it is inserted and
not when it is retracted.

A thread looks at the running calls, a few dozen times within that limit.  It recognizes a call by
its tuple, which is a new one for each call, so a call need not read a clock.  If the call does not
stop, a process of a run (see `arm`) leaves a report in a file, and ends; the next attempt of the
batch raises the reported error.  A process in which the thread cannot run, because C code keeps
Python's lock, ends likewise.

This also prevents a function from leaving such a process by `os._exit`, or by a fork that returns:
only the process that began a batch may go on with it.
"""

import ctypes
import dis
import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from ikebana.errors import StuckError
from ikebana.processor.base import processes
from ikebana.processor.base.texts import shown

LIMIT_VARIABLE = "IKEBANA_LONGEST_CALL"
REPORT_VARIABLE = "IKEBANA_STUCK_CALL"
ENDED = 70
"""The status of a process that ended because a call did not."""

PendingCall = tuple[str, str | Callable[[], str], Callable[[], None] | None]
"""The operator, the called function or statement, and a function that stops a statement, or None.

The second may be a function that makes the text, if making it costs more than a call."""

# Half of the default limit of a batch.
_LONGEST_S = 150.0
_LOOKS = 30
# How many looks a stopped call has to end, and how many Python's lock may be kept beyond that.
_GRACE = 3
_LOCKED = 6
# How much a busy machine may add to that.
_SLOW_S = 5.0
_FRAMES = 5
# Frames below this folder belong to us, not to users.
_OURS = str(Path(__file__).parents[1]) + os.sep
_CALLING = (
    "kernels/user_calls.py",
    "linear/database.py",
    "linear/functions.py",
    "topics/messages.py",
)
CALLERS = tuple(f'"{_OURS}{each}"' for each in _CALLING)
"""The files of functions that make calls, as `faulthandler` writes them."""
_HINT = (
    "What it was called with makes it run on. Bound its work by the size of what it gets, or keep "
    "such rows from it by a condition before it; if it is right, raise run.max_batch: a call may "
    "last half as long. Nothing of the batch was committed."
)

_calls: dict[int, PendingCall | None] = {}
_reports: dict[int, str] = {}


class CallStopped(BaseException):
    """Raised within a call to stop it; no function of a user should catch it."""


class ExitRefusedError(SystemExit):
    """A function wanted to end its process at once, by `os._exit`."""


class _State:
    """The state of the watching in this process."""

    def __init__(self, report: Path | None = None, *, is_forked: bool = False) -> None:
        self.report = report
        self.is_forked = is_forked
        self.watcher: threading.Event | None = None
        """The event that ends the watching thread; None if there is no such thread."""
        self.limit = os.environ.get(LIMIT_VARIABLE)
        """The limit in the environment when it was last read."""
        self.lock = threading.Lock()


_state = _State()


def begin(call: PendingCall) -> None:
    """Note that this thread begins a call; each call needs a tuple of its own."""
    _calls[threading.get_ident()] = call
    if _state.watcher is None:
        _start(call)


def end() -> None:
    """Note that the call has ended; a process that it has forked ends here."""
    _calls[threading.get_ident()] = None
    if _state.is_forked:
        _leave(0)


def stuck() -> StuckError:
    """The error for the stopped call of this thread."""
    report = _reports.pop(threading.get_ident(), "a call was stopped")
    return StuckError(report, hint=_HINT)


def was_stopped() -> bool:
    """Whether the last call of this thread was stopped."""
    return threading.get_ident() in _reports


def is_own_doing(error: BaseException) -> bool:
    """Whether a function has raised an error itself, so that the error is data.

    False if the call was stopped, or if this process got a signal meanwhile.
    """
    if isinstance(error, Exception):
        return True
    if isinstance(error, CallStopped | processes.Stopped):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return True
    code = trace.tb_frame.f_code
    if code.co_filename == processes.__file__:
        return False
    # An interrupt is raised between instructions; a function raises by one.
    return not isinstance(error, KeyboardInterrupt) or code.co_code[trace.tb_lasti] in _RAISES


def longest_s(environ: Mapping[str, str]) -> float:
    """How long a call may last."""
    return float(environ.get(LIMIT_VARIABLE, _LONGEST_S))


def variables(max_batch_s: float, report: Path) -> dict[str, str]:
    """The environment of the processes of a run, which share the file of the report."""
    return {LIMIT_VARIABLE: limit(max_batch_s), REPORT_VARIABLE: str(report)}


def limit(max_batch_s: float) -> str:
    """The value of `LIMIT_VARIABLE`: a call may last half as long as a batch."""
    return str(max_batch_s / 2)


def arm() -> None:
    """Read the environment, which may have changed.

    If it names a report, a call that cannot be stopped ends this process.

    Raises:
        StuckError: an earlier attempt of the batch was stuck.
    """
    _heed(os.environ.get(LIMIT_VARIABLE))
    path = os.environ.get(REPORT_VARIABLE)
    if not path:
        return
    _state.report = Path(path)
    os._exit = _exit  # type: ignore[assignment]
    if (error := reported(_state.report)) is not None:
        raise error


def reported(report: Path) -> StuckError | None:
    """Read the report that a process has left before it ended, if any.

    The report of a process without Python's lock names its call, if one was under way at its last
    look; else its stack shows whether there was one.
    """
    with suppress(OSError):
        if text := report.read_text(errors="replace").strip():
            return StuckError(text, hint=_HINT)
    # The report of a process without Python's lock has the time of its last look.
    for path in sorted(report.parent.glob(report.name + ".*")):
        with suppress(OSError, ValueError):
            text = path.read_text(errors="replace")
            looked_s, lasting_s, thread, message, stack = text.split("\n", 4)
            lasted_s = path.stat().st_mtime - float(looked_s)
            # A process that was suspended between two calls has done nothing wrong.
            in_call = message or any(caller in stack for caller in CALLERS)
            if "File" in stack and in_call and lasted_s < _late_s(float(lasting_s)):
                said = message or f"a function has not returned for {float(lasting_s):.4g} s"
                return StuckError(f"{said}; it is at {_places(stack, thread)}", hint=_HINT)
    return None


def _late_s(lasting_s: float) -> float:
    """When a guard of this duration is late, because its process or machine was suspended."""
    return min(2 * lasting_s, 1.1 * lasting_s + _SLOW_S)


def _places(stacks: str, thread: str) -> str:
    """The innermost frames of a thread, in the stacks that `faulthandler` has written."""
    of_threads = stacks.split("\n\n")
    stack = next((each for each in of_threads if thread in each), of_threads[-1])
    frames = [line.strip() for line in stack.splitlines() if line.strip().startswith("File")]
    users = list(takewhile(lambda frame: _OURS not in frame, frames))
    return ", called from ".join((users or frames)[:_FRAMES])


def _heed(limit: str | None) -> None:
    """Let the next call start another watcher if the limit has changed.

    An unchanged limit keeps the watcher: batches come more often than looks, and each would delay
    the next look.
    """
    with _state.lock:
        if limit == _state.limit:
            return
        _state.limit = limit
        if _state.watcher is not None:
            _state.watcher.set()
            _state.watcher = None
            _unguard_lock()
    if _going_on():
        _start()


def _start(call: PendingCall | None = None) -> None:
    with _state.lock:
        if _state.watcher is None:
            _state.watcher = threading.Event()
            # The thread may be prevented from its first look.
            _guard_lock([(threading.get_ident(), call)], longest_s(os.environ))
            threading.Thread(
                target=_watch, args=(_state.watcher,), name="ikebana-calls", daemon=True
            ).start()


def _watch(ended: threading.Event) -> None:
    """Look at the calls until there have been none for a while, or another thread takes over."""
    seen: dict[int, tuple[PendingCall, int]] = {}
    idle = 0
    while idle < _LOOKS:
        # Looks are counted, not seconds: while a process was suspended, nobody watched it.
        limit_s = longest_s(os.environ)
        if ended.wait(limit_s / _LOOKS):
            return
        going_on = _going_on()
        idle = 0 if going_on else idle + 1
        looks = {}
        for thread, call in going_on:
            before = seen.get(thread)
            looks[thread] = call, before[1] + 1 if before and before[0] is call else 0
            _judge(thread, call, looks[thread][1], limit_s)
        seen = looks
        with _state.lock:
            if _state.watcher is ended:
                _guard_lock(going_on, limit_s)
    with _state.lock:
        if _state.watcher is ended:
            _state.watcher = None
            _unguard_lock()
    if _going_on():
        _start()


def _going_on() -> list[tuple[int, PendingCall]]:
    """The running calls, with their threads."""
    return [(thread, call) for thread, call in list(_calls.items()) if call is not None]


def _judge(thread: int, call: PendingCall, looks: int, limit_s: float) -> None:
    """Stop a call that was seen in too many looks."""
    if looks < _LOOKS:
        return
    frame = sys._current_frames().get(thread)
    if frame is None or _calls.get(thread) is not call:
        return
    stack = list(takewhile(_is_users, reversed(traceback.extract_stack(frame))))[:_FRAMES]
    places = [f'File "{f.filename}", line {f.lineno} in {f.name}' for f in stack]
    report = _message(call, limit_s)
    if places:
        report += f"; it is at {', called from '.join(places)}"
    _reports[thread] = report
    if _state.report is not None:
        with suppress(OSError):
            _state.report.write_text(report)
        if looks >= _LOOKS + _GRACE:
            print(report, file=sys.stderr, flush=True)
            _leave(ENDED)
    if call[2] is not None:
        call[2]()
    if call[2] is None or stack:
        # A statement may be within a function that it calls.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread), ctypes.py_object(CallStopped)
        )


def _is_users(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith(_OURS)


def _message(call: PendingCall, limit_s: float) -> str:
    operator, what, _ = call
    if not isinstance(what, str):
        what = what()
    whose = f"operator {shown(operator)}: " if operator else ""
    return f"{whose}{what} has not returned for {limit_s:.4g} s"


def _guard_lock(going_on: Sequence[tuple[int, PendingCall | None]], limit_s: float) -> None:
    """Let a C thread end this process, unless the next look comes in time."""
    if _state.report is None:
        return
    lasting_s = limit_s * (1 + _LOCKED / _LOOKS)
    thread, call = going_on[0] if going_on else (threading.main_thread().ident or 0, None)
    report = "" if call is None else _message(call, limit_s)
    with suppress(OSError):
        file = _own_report().open("w")
        file.write(f"{time.time()}\n{lasting_s}\n{thread:#018x}\n{report}\n")
        file.flush()
        faulthandler.dump_traceback_later(lasting_s, exit=True, file=file)
        _report_files[:] = [file]


def _unguard_lock() -> None:
    if _state.report is not None:
        faulthandler.cancel_dump_traceback_later()
        with suppress(OSError):
            _own_report().unlink(missing_ok=True)


def _own_report() -> Path:
    assert _state.report is not None, "a process that is not armed"
    return _state.report.with_name(f"{_state.report.name}.{os.getpid()}")


# The file that `faulthandler` would write to has to stay open.
_report_files: list[object] = []


def _exit(status: int) -> None:
    """Take the place of `os._exit`: a call may not end the process that runs it."""
    if _calls.get(threading.get_ident()) is not None and not _state.is_forked:
        raise ExitRefusedError(status)
    _leave(status)


def _forked() -> None:
    """Mark a process that was forked within a call as the user's."""
    global _state
    within = _calls.get(threading.get_ident()) is not None
    _calls.clear()
    _reports.clear()
    _state = _State(_state.report, is_forked=within)


_leave = os._exit
_RAISES = (dis.opmap["RAISE_VARARGS"], dis.opmap["RERAISE"])
os.register_at_fork(after_in_child=_forked)
