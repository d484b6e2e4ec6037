"""A query is started again after what may go by itself, later and later, and not for ever."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import StreamingQueryException

from ikebana import errors
from ikebana.errors import AwayError, FencedError, IkebanaError, LostError
from ikebana.processor.base.processes import WINDOW_S, AttemptFailed, Restarts, with_restarts
from ikebana.processor.kafka.reader import DeletedError
from ikebana.processor.spark import failures
from support.clocks import Clock

AWAY = AwayError("the brokers are away")


def failing(times: int, each_takes_s: float = 0.0) -> tuple[Clock, Callable[[], float]]:
    """An attempt that fails so often, each time after a while; then it says when it succeeds."""
    clock = Clock()
    left = iter(range(times))

    def attempt() -> float:
        clock.passes(each_takes_s)
        if next(left, None) is not None:
            raise AttemptFailed from AWAY
        return clock.now

    return clock, attempt


def test_pauses_double_up_to_a_minute() -> None:
    """The last attempt comes after all of them."""
    clock, attempt = failing(8)
    told: list[tuple[Exception, float]] = []

    ended_s = with_restarts(
        attempt, Restarts(10), lambda *of: told.append(of), clock.passes, clock
    )

    assert told == [(AWAY, pause_s) for pause_s in (1, 2, 4, 8, 16, 32, 60, 60)]
    assert ended_s == 183


@pytest.mark.parametrize("most", [0, 1, 3])
def test_what_fails_every_time_is_raised_in_the_end(most: int) -> None:
    """By its own name, after as many restarts as there may be."""
    clock, attempt = failing(100)
    told: list[Exception] = []

    with pytest.raises(AwayError) as raised:
        with_restarts(
            attempt, Restarts(most), lambda cause, _: told.append(cause), clock.passes, clock
        )

    assert raised.value is AWAY
    assert told == [AWAY] * most


def test_what_fails_now_and_then_may_do_so_for_ever() -> None:
    """Restarts of more than an hour ago do not count for the number."""
    clock, attempt = failing(50, each_takes_s=WINDOW_S / 2 + 1)
    pauses: list[float] = []

    with_restarts(
        attempt, Restarts(2), lambda _, pause_s: pauses.append(pause_s), clock.passes, clock
    )

    assert pauses == [1] * 50


@pytest.mark.parametrize(("each_takes_s", "pauses"), [(59, [1, 2, 4, 8]), (61, [1, 1, 1, 1])])
def test_a_run_that_went_on_for_a_while_is_started_again_soon(
    each_takes_s: float, pauses: list[float]
) -> None:
    """What it lost an hour's work ago says nothing of the next failure."""
    clock, attempt = failing(4, each_takes_s)
    told: list[float] = []

    with_restarts(
        attempt, Restarts(10), lambda _, pause_s: told.append(pause_s), clock.passes, clock
    )

    assert told == pauses


@given(
    most=st.integers(0, 5),
    times=st.lists(st.floats(0, WINDOW_S), max_size=30).map(
        lambda gaps: [sum(gaps[:n]) for n in range(len(gaps))]
    ),
)
def test_no_hour_has_more_restarts_than_allowed(most: int, times: list[float]) -> None:
    """Whenever failures come."""
    restarts = Restarts(most)

    given = [at for at in times if restarts.pause_s(at) is not None]

    for first, after in zip(given, given[most:], strict=False):
        assert after >= first + WINDOW_S
    assert all(before <= after for before, after in pairwise(given))


def test_another_error_is_raised_at_once() -> None:
    """It is none that an attempt has found to be worth another one."""

    def attempt() -> None:
        raise FencedError("a newer instance has taken over")

    with pytest.raises(FencedError):
        with_restarts(attempt, Restarts(5), lambda *_: pytest.fail("told"))


# Every error of ours, and whether the query is started again after it.
TRANSIENT = {
    "AccessError": False,
    "AwayError": True,
    "LostError": True,
    "SparkStartError": True,
    "BrokerError": False,
    "CheckpointError": False,
    "ConfigError": False,
    "ConvergenceError": False,
    "FencedError": False,
    "IkebanaError": False,
    "JavaError": False,
    "LateError": True,
    "OutputError": False,
    "PlanError": False,
    "QueryError": False,
    "RecordError": False,
    "SourceError": False,
    "SpaceError": True,
    "TooMuchError": False,
    "StateFileError": False,
    "StuckError": False,
    "StorageError": True,
}


def test_of_every_error_it_is_known_whether_it_may_go_by_itself() -> None:
    """What we refuse is refused for good."""
    found = {
        name: issubclass(kind, failures._TRANSIENT)
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, IkebanaError)
    }

    assert found == TRANSIENT


SPARK = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {} SQLSTATE: XXKST"
TASK = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: "
    "Lost task 0.3 in stage 3.0 (TID 9) (127.0.0.1 executor driver): {}\n"
    "\tat org.apache.spark.api.python.BasePythonRunner\n"
)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        pytest.param(
            "org.apache.spark.SparkException: Python worker failed to connect back.\n"
            "Caused by: java.net.SocketTimeoutException: Timed out while waiting for the Python "
            "worker to connect back",
            LostError,
            "a Python worker did not connect within 10 s",
            id="a worker that is too slow",
        ),
        pytest.param(
            TASK.format("Python worker exited unexpectedly (crashed): java.io.EOFException"),
            LostError,
            "a Python worker was lost",
            id="a worker that died",
        ),
        pytest.param(
            TASK.format("ExecutorLostFailure (executor 1 exited caused by one of the tasks)"),
            LostError,
            "an executor was lost",
            id="an executor that died",
        ),
        pytest.param(
            "org.apache.spark.rpc.RpcTimeoutException: Futures timed out after [120 seconds]",
            LostError,
            "Spark did not answer itself in time",
            id="a question of Spark's to itself",
        ),
        pytest.param(
            TASK.format(
                "PythonException: cimpl.KafkaException: "
                'KafkaError{code=_TRANSPORT,val=-195,str="x"}'
            ),
            AwayError,
            "the brokers did not answer",
            id="brokers that are away",
        ),
        pytest.param(
            TASK.format(
                "ikebana.errors.AwayError: could not reach the registry for 90 s\n"
                "Hint: Check the registry's url."
            ),
            AwayError,
            "could not reach the registry for 90 s\nHint: Check the registry's url.",
            id="our own word for it",
        ),
        pytest.param(
            TASK.format("ikebana.errors.FencedError: a newer instance has taken over")
            + "Python worker exited unexpectedly (crashed)",
            FencedError,
            "a newer instance has taken over",
            id="our own word wins",
        ),
        pytest.param(
            TASK.format("PythonException: Traceback\nOSError: [Errno 28] No space left on device"),
            errors.SpaceError,
            "a disk is full (OSError: [Errno 28] No space left on device)",
            id="a full disk",
        ),
        pytest.param(
            "Failed to read log file file:/data/commits/10. Incomplete log file in the offset "
            "commit log",
            errors.CheckpointError,
            'Spark cannot read its file "/data/commits/10" of the checkpoint: Incomplete log '
            "file in the offset commit log",
            id="a damaged log of Spark's",
        ),
        pytest.param(
            TASK.format(
                "org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An "
                "error occurred during loading state.\nCaused by: java.io.EOFException: nothing"
            ),
            errors.CheckpointError,
            'Spark cannot read its files in "state" of the checkpoint: java.io.EOFException',
            id="damaged state of Spark's",
        ),
        pytest.param(
            "An error occurred while calling o201.load.\n: java.io.IOException: Stream closed",
            LostError,
            "a Python worker did not start (java.io.IOException: Stream closed",
            id="no worker, as what starts them was killed",
        ),
        pytest.param(
            "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.",
            FencedError,
            "another instance writes to this checkpoint's offset log",
            id="another instance",
        ),
        pytest.param(
            TASK.format(
                "PythonException: cimpl.KafkaException: "
                'KafkaError{code=TOPIC_AUTHORIZATION_FAILED,val=29,str="x"}'
            ),
            errors.QueryError,
            "the query ended with an error",
            id="brokers that refuse",
        ),
        pytest.param(
            TASK.format(
                "PythonException: Traceback\nAssertionError: batch 3: commit records of [1]"
            ),
            errors.QueryError,
            "the query ended with an error: AssertionError: batch 3: commit records of [1]",
            id="a mistake of ours",
        ),
    ],
)
def test_what_spark_says_has_a_name(text: str, kind: type[Exception], message: str) -> None:
    """And by its name it is known whether it is worth another start."""
    found = failures.own_error_in(SPARK.format(text))

    assert type(found) is kind
    assert str(found).startswith(message)
    assert failures.is_transient(found) == TRANSIENT[kind.__name__]


def _all_of_ours() -> list[type[errors.IkebanaError]]:
    found, left = [], [errors.IkebanaError]
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        found.append(kind)
    return [kind for kind in found if kind.__module__.startswith("ikebana.")]


def test_every_error_of_ours_is_told_in_its_own_words() -> None:
    """Wherever its class stands, with its own remedy: records that were deleted are one."""
    kinds = _all_of_ours()
    assert DeletedError in kinds

    for kind in kinds:
        if kind is errors.PlanError:
            continue
        text = f"{kind.__module__}.{kind.__qualname__}: the records are gone\nHint: Do this."
        found = failures.own_error_in(SPARK.format(TASK.format(text)))

        assert str(found) == "the records are gone\nHint: Do this.", kind
        assert type(found) is next(b for b in kind.__mro__ if b.__module__ == "ikebana.errors")


def test_a_class_that_is_not_there_is_told_as_it_is() -> None:
    """A text may come from anywhere: what it names is looked up among our errors alone."""
    for name in ("ikebana.nothing.There", "ikebana.errors.Nothing", "os.system", "ikebana.ground"):
        found = failures.own_error_in(SPARK.format(TASK.format(f"{name}Error: x")))

        assert type(found) is errors.QueryError


JAVA = """An error occurred while calling o87.start.
: java.nio.file.AccessDeniedException: s3a://state/orders: getFileStatus
\tat org.apache.hadoop.fs.s3a.S3AUtils.translateException(S3AUtils.java:300)
{cause}"""


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (
            "Caused by: S3Exception: the region is wrong\n\tat a.B.c(B.java:1)\n",
            "S3Exception: the region is wrong",
        ),
        ("", "java.nio.file.AccessDeniedException: s3a://state/orders: getFileStatus"),
    ],
)
def test_a_call_into_spark_that_fails_is_told_by_what_it_is_due_to(
    cause: str, message: str
) -> None:
    """Such as the start of a query whose checkpoint's folder cannot be reached."""
    found = failures.own_error_in(JAVA.format(cause=cause))

    assert str(found).startswith(f"the query ended with an error: {message}\n")


class Told(StreamingQueryException):  # type: ignore[misc]
    """An exception of Spark's without a JVM that could be asked for it."""

    def __init__(self, text: str, stack: str) -> None:
        self._text, self._stackTrace = text, stack

    def __str__(self) -> str:
        return self._text


def test_a_connection_that_broke_has_its_name_in_the_causes_alone() -> None:
    """The process that plans batches was killed: Spark's text is "Connection reset", no more."""
    stack = (
        "org.apache.spark.sql.streaming.StreamingQueryException: Connection reset\n"
        "\tat org.apache.spark.sql.execution.streaming.StreamExecution.run\n"
        "Caused by: java.net.SocketException: Connection reset\n"
        "\tat java.base/sun.nio.ch.NioSocketImpl.implRead\n"
    )

    found = failures.own_error(Told(SPARK.format("Connection reset"), stack))

    assert isinstance(found, LostError)
    assert found.message == (
        "a Python worker was lost (java.net.SocketException: Connection reset)"
    )
    assert not failures.is_transient(failures.own_error(Told(SPARK.format("a mistake"), "")))


def test_a_call_into_a_jvm_that_dies_before_it_says_why_is_one_that_is_lost() -> None:
    """The text of Java's exception is asked of the JVM; the query is started again."""

    class Dying(Py4JJavaError):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        def __str__(self) -> str:
            raise Py4JNetworkError("Answer from Java side is empty")

    found = failures.own_error(Dying())

    assert isinstance(found, LostError)
    assert failures.is_transient(found)


def test_a_name_that_a_dying_jvm_does_not_know_is_no_proper_answer() -> None:
    """Py4J takes an empty answer for the news that there is no such name."""
    empty = Py4JError("PythonUtils.getBroadcastThreshold does not exist in the JVM")

    assert failures.is_cut_off(empty)
    assert isinstance(failures.own_error(empty, alive=False), LostError)


def test_a_jvm_that_nobody_answers_for_is_lost() -> None:
    """Py4J tries a call again that was cut off, and is refused the connection."""
    refused = ConnectionRefusedError(111, "Connection refused")

    assert isinstance(failures.own_error(refused, alive=False), LostError)
    # While the JVM runs, it was somebody else who refused.
    assert failures.own_error(refused) is refused
