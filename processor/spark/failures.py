"""Classify the failure of a query: which error it is, and whether to restart the query.

The loss of a worker, a timeout, and brokers or stores that do not answer may pass.  Any other
failure, above all a refusal, would be the same after a restart.
"""

import importlib
import os
import re
import tempfile

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import StreamingQueryException

from ikebana import errors
from ikebana.arrangements.storage import is_outage, temporary_error
from ikebana.errors import (
    AwayError,
    CheckpointError,
    FencedError,
    IkebanaError,
    LostError,
    PlanError,
    QueryError,
    SpaceError,
    SparkStartError,
    StorageError,
)
from ikebana.processor.kafka import client

_PYTHON_ERROR = re.compile(r"[A-Za-z_.]+(Error|Exception): ")
# An error with a class in a module of ours.
_OURS = re.compile(r"\b(ikebana(?:\.\w+)*)\.(\w+Error): ")
_SAFE = "The checkpoint is as the last batch left it: starting again is safe."

# Errors of ours that may pass after a restart.
_TRANSIENT = (AwayError, LostError, SpaceError, SparkStartError, StorageError)
# Spark's texts for failures that have no cause in ikebana, and their meanings.
_LOST = (
    ("Python worker failed to connect back", "a Python worker did not connect within 10 s"),
    ("Python worker exited unexpectedly", "a Python worker was lost"),
    ("Python worker process", "a Python worker was lost"),
    ("No port number in pyspark", "a Python worker did not start"),
    ("EOFException occurred while reading the port number", "a Python worker did not start"),
    ("Python daemon failed to launch worker", "a Python worker did not start"),
    ("ExecutorLostFailure", "an executor was lost"),
    ("Executor heartbeat timed out", "an executor was lost"),
    ("FetchFailed", "a result of another task was lost"),
    ("RpcTimeoutException", "Spark did not answer itself in time"),
    ("Futures timed out", "Spark did not answer itself in time"),
    ("SocketTimeoutException", "a Python worker did not answer in time"),
    ("could not open socket", "a result could not be fetched from Spark"),
    ("java.net.SocketException", "a Python worker was lost"),
    ("java.nio.channels.ClosedChannelException", "a Python worker was lost"),
    ("java.io.IOException: Broken pipe", "a Python worker was lost"),
    ("java.io.IOException: Connection reset by peer", "a Python worker was lost"),
    # What Spark starts Python workers with was killed.
    ("java.io.IOException: Stream closed", "a Python worker did not start"),
    ("java.io.EOFException", "a Python worker was lost"),
)
_FULL = ("No space left on device", "Disk quota exceeded")
# Spark's messages about files of its own that it cannot use.
_LOG_FILE = re.compile(r"Failed to read log file (?P<file>\S+?)\. (?P<reason>[^\n]*)")
_STATE = "[CANNOT_LOAD_STATE_STORE"
# Java's words before the cause of an exception.
_CAUSE = "Caused by: "
_RIVAL = ("SparkConcurrentModificationException", "CONCURRENT_STREAM_LOG_UPDATE")


def is_transient(error: Exception) -> bool:
    """Return whether the query may succeed after a restart."""
    return isinstance(error, _TRANSIENT)


def own_error(error: Exception, *, alive: bool = True) -> Exception:
    """Find the error of ours for the end of a query; errors not of Spark or Kafka are returned.

    `alive` says whether Spark still runs.
    """
    if isinstance(error, StreamingQueryException):
        result = own_error_in(_with_causes(error))
        # The end of Spark may show as any error.
        return (
            result if alive or not isinstance(result, QueryError) else unexpected_end(str(result))
        )
    # Py4J repeats a call that was cut off, and then cannot connect.
    if isinstance(error, Py4JError | ConnectionError) and not alive:
        return _gone()
    if isinstance(error, Py4JJavaError):
        # pyspark asks the JVM for the text, and the JVM may be gone when a traceback is printed.
        try:
            text = str(error)
        except Py4JError:
            return _gone()
        return own_error_in(text)
    if isinstance(error, OSError):
        return temporary_error(error, "the file system of the checkpoint failed") or error
    return client.away_error(error) or error


def is_cut_off(error: Exception) -> bool:
    """Return whether the JVM gave no proper answer, as it does not before it has ended.

    Py4J takes an empty answer for the news that a name "does not exist in the JVM".
    """
    return isinstance(error, Py4JError | ConnectionError) and not isinstance(error, Py4JJavaError)


def _with_causes(error: StreamingQueryException) -> str:
    """Add the causes to the text, which for a broken connection has only the message."""
    stack = getattr(error, "_stackTrace", None) or ""
    causes = [line for line in stack.splitlines() if line.startswith(_CAUSE)]
    return "\n".join([str(error), *causes])


def _gone() -> LostError:
    return LostError("Spark's JVM ended by itself", hint=_SAFE)


def unexpected_end(why: str = "it gave no reason") -> LostError:
    """The error for an unexpected end of Spark, or of its query."""
    return LostError(
        f"Spark ended by itself ({why})",
        hint=f"A cluster removes an application whose executors do not start. {_SAFE}",
    )


def lost_executor() -> LostError:
    """The error for a batch that waits for an executor which Spark has lost."""
    return LostError("an executor was lost, for which a batch has waited", hint=_SAFE)


def own_error_in(text: str) -> IkebanaError:
    """Find an error of ours in the text of Spark's exception."""
    if ours := _ours(text):
        return ours
    if any(rival in text for rival in _RIVAL):
        return FencedError("another instance writes to this checkpoint's offset log")
    if reason := client.away_name_in(text):
        return AwayError(f"the brokers did not answer: {reason}", hint=_SAFE)
    if any(full in text for full in _FULL):
        return SpaceError(
            f"a disk is full ({innermost_error(text)})",
            hint="Make space where run.checkpoint, run.local_directory and the temporary folder "
            f"are. {_SAFE}",
        )
    if is_outage(text):
        hint = f"{_in_full(text)} {_SAFE}"
        return StorageError(
            f"the checkpoint's store did not answer ({innermost_error(text)})", hint=hint
        )
    if damaged := _damaged(text):
        return damaged
    for sign, what in _LOST:
        if sign in text:
            return LostError(f"{what} ({innermost_error(text)})", hint=f"{_in_full(text)} {_SAFE}")
    hint = f"{_in_full(text)} {_SAFE}"
    return QueryError(f"the query ended with an error: {innermost_error(text)}", hint=hint)


def _damaged(text: str) -> CheckpointError | None:
    """Make the error for a file of the checkpoint that Spark cannot read."""
    if match := _LOG_FILE.search(text):
        file, reason = match["file"].removeprefix("file:"), match["reason"].split(" SQLSTATE")[0]
        what = f'Spark cannot read its file "{file}" of the checkpoint: {reason}'
    elif _STATE in text:
        what = f'Spark cannot read its files in "state" of the checkpoint: {innermost_error(text)}'
    else:
        return None
    return CheckpointError(
        what,
        hint="A file is damaged or missing: restore it from a backup, or start with a new "
        f"checkpoint and new output topics. {_in_full(text)}",
    )


def _ours(text: str) -> IkebanaError | None:
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if (named := _OURS.search(line)) is None or (kind := _kind(*named.groups())) is None:
            continue
        following = lines[at + 1] if at + 1 < len(lines) else ""
        hint = following.removeprefix("Hint: ") if following.startswith("Hint: ") else None
        return kind(line[named.end() :], hint=hint)
    return None


def _kind(module: str, name: str) -> type[IkebanaError] | None:
    """Find the class of an error of ours, or its nearest base in `errors`.

    Classes in other modules may need more than a message.
    """
    try:
        kind = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    if not isinstance(kind, type) or not issubclass(kind, IkebanaError) or kind is PlanError:
        return None
    return next(base for base in kind.__mro__ if base.__module__ == errors.__name__)


def innermost_error(text: str) -> str:
    """Find the innermost error in Spark's text: in Python, else in Java, else its first line."""
    lines = text.strip().splitlines()
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    java = [line[len(_CAUSE) :] for line in lines if line.startswith(_CAUSE)]
    raised = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    innermost = (python or java or raised or lines[:1] or ["no reason given"])[-1]
    return innermost.strip()[:300]


def _in_full(text: str) -> str:
    """Keep the whole text of an unknown error, for its investigation."""
    descriptor, path = tempfile.mkstemp(prefix="ikebana-error-", suffix=".log")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    return f"The whole of it is in {path}."
