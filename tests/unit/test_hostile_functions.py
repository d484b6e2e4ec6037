"""What functions of users may do to the process that runs them: nothing, or an error by name."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from ikebana import Input, Linear, Output, Plan, ReduceRows, StateMachine, Upsert, steps
from ikebana.errors import StuckError
from ikebana.processor.base import calls, processes
from ikebana.processor.engine.evaluate import Evaluation
from support.signals import handled_by

ROWS = {"n": [(b"1", b'{"a":1}', 1), (b"2", b'{"a":2}', 1)]}
SOURCE = Input("n", ("n",))


def linear(step: Any) -> Plan:
    return Plan(
        "p",
        inputs=(SOURCE,),
        operators=(Upsert("u", "n"), Linear("l", "u", (step,))),
        outputs=(Output("o", "l", "o"),),
    )


def machine(step: Any) -> Plan:
    return Plan(
        "p",
        inputs=(SOURCE,),
        operators=(StateMachine("l", "n", step),),
        outputs=(Output("o", "l", "o"),),
    )


def reduction(function: Any) -> Plan:
    return Plan(
        "p",
        inputs=(SOURCE,),
        operators=(Upsert("u", "n"), ReduceRows("l", "u", function=function, by="a")),
        outputs=(Output("o", "l", "o"),),
    )


def reasons(plan: Plan) -> set[str]:
    """Why rows have failed, all of them."""
    found = Evaluation(plan).advance(ROWS, 10)
    assert found["o"] == []
    assert len(found["errors"]) == 2
    return {update.data["reason"] for update in found["errors"]}


class Own(BaseException):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class Counts(int):
    """A number that does harm where it is compared or multiplied."""

    def __le__(self, other: object) -> NoReturn:
        raise SystemExit(1)

    __ge__ = __le__
    __mul__ = __le__


class Pair(tuple[Any, Any]):
    def __iter__(self) -> NoReturn:
        raise KeyboardInterrupt

    def __len__(self) -> NoReturn:
        raise SystemExit(1)


def raising(error: BaseException) -> Any:
    def function(*_: Any) -> NoReturn:
        raise error

    return function


def endless(*_: Any) -> NoReturn:
    """Runs for ever, and does not want to be stopped the first time."""
    try:
        while True:
            pass
    except BaseException:  # noqa: BLE001 -- that is what it does
        while True:
            pass


@pytest.mark.parametrize("plan", [linear, machine, reduction])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (BaseException("x"), "BaseException: x"),
        (RecursionError("deep"), "RecursionError"),
        (MemoryError("much"), "MemoryError"),
        (Own(), "Own"),
    ],
)
def test_whatever_a_function_raises_is_an_error_record(
    plan: Any, error: BaseException, told: str
) -> None:
    """R14. What is no Exception as well: it would end the process that computes the batch."""
    made = plan if plan is not linear else lambda function: linear(steps.map_(function))
    (reason,) = reasons(made(raising(error)))

    assert reason.startswith("operator l: ")
    assert reason.endswith(f"raised {told}")


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (steps.explode(lambda data: [(data, Counts(3))]), "gave a Counts as time or diff"),
        (steps.map_(lambda data: Pair(data)), "a result has no JSON form"),
        (steps.map_(lambda data: (data[0], {1: object()})), "a result has no JSON form"),
        (steps.map_(lambda data: (data[0], 10**5_000)), "a result has no JSON form"),
        (steps.map_(lambda data: data[0]), "gave data that is not a pair (key, value)"),
        (steps.explode(lambda data: [(data, 2**70)]), "more than 64 bits"),
    ],
)
def test_results_that_are_no_data_are_error_records(step: Any, told: str) -> None:
    """Also those of classes that misbehave when they are looked at."""
    (reason,) = reasons(linear(step))

    assert told in reason


def test_a_function_that_changes_what_it_gets_changes_nothing_else() -> None:
    """Each call gets data of its own."""

    def change(data: Any) -> Any:
        data[1].clear()
        return data

    plan = Plan(
        "p",
        inputs=(SOURCE,),
        operators=(Upsert("u", "n"), Linear("l", "u", (steps.map_(change),))),
        outputs=(Output("o", "l", "o"), Output("all", "u", "all")),
    )
    found = Evaluation(plan).advance(ROWS, 10)

    assert [update.data for update in found["all"]] == [(1, {"a": 1}), (2, {"a": 2})]


@pytest.mark.parametrize(
    "plan", [linear(steps.map_(endless)), machine(endless), reduction(endless)]
)
def test_a_function_that_does_not_return_ends_the_run_by_name(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operator, function and line are told; it is no error record, as it depends on the clock."""
    monkeypatch.setenv(calls.LIMIT_VARIABLE, "0.15")
    calls.arm()

    with pytest.raises(
        StuckError, match=r"operator l: \w+ \S*test_hostile_functions:endless"
    ) as raised:
        Evaluation(plan).advance(ROWS, 10)

    assert "has not returned for 0.15 s" in raised.value.message
    assert "in endless" in raised.value.message
    assert "run.max_batch" in str(raised.value.hint)


def test_calls_that_are_many_are_not_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is that of a single call."""
    monkeypatch.setenv(calls.LIMIT_VARIABLE, "0.3")
    calls.arm()

    def slow(data: Any) -> Any:
        for _ in range(60_000):
            pass
        return data

    many = {"n": [(b"%d" % key, b"{}", 1) for key in range(200)]}
    assert len(Evaluation(linear(steps.map_(slow))).advance(many, 10)["o"]) == 200


@pytest.mark.parametrize("error", [KeyboardInterrupt, processes.Stopped(15), SystemExit(143)])
def test_a_signal_during_a_function_is_no_error_of_it(error: Any) -> None:
    """Whoever ends a run by a signal ends it, whatever is being computed."""
    asked = processes.Stopping()
    handler: Callable[[int, Any], None] = signal.default_int_handler
    if not isinstance(error, type):
        asked.asked = asked.by_signal = isinstance(error, SystemExit)
        handler = lambda number, _: asked.signalled(number)  # noqa: E731

    def interrupted(data: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return data

    raised = error if isinstance(error, type) else type(error)
    with handled_by(signal.SIGINT, handler), pytest.raises(raised):
        Evaluation(linear(steps.map_(interrupted))).advance(ROWS, 10)


def test_a_process_that_a_function_forks_does_not_go_on_with_the_batch(tmp_path: Path) -> None:
    """It would compute, and commit, what its parent does."""
    told = tmp_path / "told"

    def fork(data: Any) -> Any:
        os.fork()
        return data

    found = Evaluation(linear(steps.map_(fork))).advance(ROWS, 10)
    with told.open("a") as file:
        file.write(f"{os.getpid()}\n")

    assert len(found["o"]) == 2
    assert told.read_text() == f"{os.getpid()}\n"


# What a busy machine may take for a call that returns at once.
AMPLE_S = 2.0
SHORT_S = 0.3
TRIES = 4


def in_a_process_of_a_run(
    code: str, folder: Path, limit_s: float = AMPLE_S
) -> subprocess.CompletedProcess[str]:
    """What becomes of a process that was armed, and runs this in a call."""
    program = f"""
import os, time
from ikebana.processor.base import calls
calls.arm()
calls.begin(("totals", "map shop:price", None))
try:
    {code}
finally:
    calls.end()
print("ended")
"""
    environment = {**os.environ, calls.LIMIT_VARIABLE: str(limit_s)}
    environment[calls.REPORT_VARIABLE] = str(folder / "stuck")
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def reported_of(code: str, folder: Path) -> str:
    """What a process reports that has to end, because a call does not return.

    On a busy machine it may end so late that it is taken for one that stood still, of which
    nothing is reported.  Spark tries a batch four times as well.
    """
    errors = []
    for _ in range(TRIES):
        ended = in_a_process_of_a_run(code, folder, SHORT_S)
        assert ended.returncode != 0
        assert "ended" not in ended.stdout
        if (found := calls.reported(folder / "stuck")) is not None:
            return found.message
        errors.append(ended.stderr)
    raise AssertionError(f"no report in {TRIES} tries: {errors}")


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("time.sleep(1e6)", id="it waits in C"),
        pytest.param("sum(range(10**15))", id="it keeps Python's lock"),
        pytest.param("import re; re.match('(a+)+$', 'a' * 60 + '!')", id="a pattern explodes"),
    ],
)
def test_a_call_that_cannot_be_stopped_ends_its_process_and_is_told(
    code: str, tmp_path: Path
) -> None:
    """The next try of the batch raises what was reported, in place of hanging as well."""
    message = reported_of(code, tmp_path)

    assert "operator totals: map shop:price has not returned" in message
    assert 'File "<string>", line 7 in <module>' in message
    again = in_a_process_of_a_run("pass", tmp_path)
    assert "StuckError: operator totals: map shop:price" in again.stderr


def test_a_function_cannot_leave_its_process_at_once(tmp_path: Path) -> None:
    """`os._exit` raises a SystemExit there, which is an error record like another."""
    ended = in_a_process_of_a_run("os._exit(3)\nexcept SystemExit: print('refused')", tmp_path)

    assert ended.stdout == "refused\nended\n"
    assert calls.reported(tmp_path / "stuck") is None


def test_a_process_whose_calls_return_leaves_no_report(tmp_path: Path) -> None:
    """And nothing waits for its end."""
    ended = in_a_process_of_a_run("time.sleep(0.1)", tmp_path)

    assert ended.stdout == "ended\n"
    assert calls.reported(tmp_path / "stuck") is None


def test_batches_that_come_more_often_than_looks_end_no_process(tmp_path: Path) -> None:
    """Each arms its process anew; the guard of Python's lock is renewed all the same."""
    code = """
    calls.end()
    begun = time.monotonic()
    while time.monotonic() < begun + 1.5 * float(os.environ[calls.LIMIT_VARIABLE]):
        calls.arm()
        calls.begin(tuple(["totals", "map shop:price", None]))
        time.sleep(0.005)
        calls.end()"""
    ended = in_a_process_of_a_run(code.strip(), tmp_path)

    assert ended.stdout == "ended\n", ended.stderr
    assert calls.reported(tmp_path / "stuck") is None


def test_a_limit_that_becomes_shorter_holds_for_the_call_that_comes_next(tmp_path: Path) -> None:
    """A process that is reused may look rarely until then."""
    code = """
    calls.end()
    os.environ[calls.LIMIT_VARIABLE] = "1000"
    calls.arm()
    calls.begin(("totals", "map shop:price", None))
    calls.end()
    os.environ[calls.LIMIT_VARIABLE] = "0.3"
    calls.arm()
    calls.begin(("totals", "map shop:price", None))
    sum(range(10**15))"""
    message = reported_of(code.strip(), tmp_path)

    assert "operator totals: map shop:price has not returned" in message


@pytest.mark.parametrize(("lasted_s", "is_stuck"), [(181.0, True), (200.0, True), (210.0, False)])
def test_a_machine_that_stood_still_has_not_kept_a_lock(
    lasted_s: float, *, is_stuck: bool, tmp_path: Path
) -> None:
    """Its guards end their processes when it goes on, later than they were set to."""
    report = tmp_path / "stuck"
    path = tmp_path / "stuck.17"
    path.write_text('1000.0\n180.0\n0x1\nmap f has not returned\nThread 0x1\n  File "a", line 1')
    os.utime(path, (0, 1000 + lasted_s))

    assert (calls.reported(report) is not None) == is_stuck


@pytest.mark.parametrize(
    ("file", "is_stuck"), [("spark/workers/serving.py", False), ("linear/functions.py", True)]
)
def test_a_process_that_was_suspended_between_calls_was_not_stuck(
    file: str, *, is_stuck: bool, tmp_path: Path
) -> None:
    """Its guard is late by a little only, as that of a call which keeps Python's lock."""
    path, ours = tmp_path / "stuck.17", Path(calls.__file__).parents[1]
    path.write_text(f'1000.0\n36.0\n0x1\n\nThread 0x1\n  File "{ours}/{file}", line 45 in serve')
    os.utime(path, (0, 1040))

    assert (calls.reported(tmp_path / "stuck") is not None) == is_stuck


def test_the_files_that_make_calls_are_listed() -> None:
    folder = Path(calls.__file__).parents[1]
    making = {path for path in folder.rglob("*.py") if "calls.begin(" in path.read_text()}

    assert {f'"{path}"' for path in making} == {*calls.CALLERS}
