"""SIGKILL of sinks and of their targets, or bad answers of these, ten times in a run.

After each, every table is compared with its collection at its frontier.
"""

from collections.abc import Callable

from chaos.delivered import Delivered
from chaos.http_faults import Fault
from chaos.scenario import Kind, Scenario, scenario

_TARGETS: tuple[tuple[Kind, str, str, str], ...] = (
    ("sink-files", "iceberg", "Iceberg tables", ""),
    ("sink-files", "delta", "Delta tables", ""),
    ("sink-files", "parquet", "Parquet files", ""),
    ("sink-database", "postgres", "PostgreSQL", "PostgreSQL"),
    ("sink-bucket", "iceberg", "Iceberg tables in an object store", "the object store"),
    ("sink-bucket", "delta", "Delta tables in an object store", "the object store"),
)
_KILLS = 10
_BADLY_S = 2.0


def _kill(life: Delivered) -> None:
    life.kill_sink()


def _kill_target(life: Delivered) -> None:
    life.kill_server()
    life.start_server()


def _kill_both(life: Delivered) -> None:
    life.kill_server()
    life.kill_sink()
    life.start_server()


def _answer_badly(life: Delivered) -> None:
    fault: Fault = life.choice.choice(("losing", "resetting", "failing", "throttled"))
    life.server.become(fault, 0.3)
    try:
        life.wait(_BADLY_S)
    finally:
        life.server.become("none")


def _kill_in_first_rows(life: Delivered) -> None:
    for longest_s in (2, 10):
        life.wait(longest_s)
        life.kill_sink()
        life.compare()
        life.start_sink()


def _of(
    kind: Kind, target: str, act: Callable[[Delivered], None], does: str, ends: str
) -> Scenario:
    def acts(life: Delivered) -> None:
        if act is _kill_in_first_rows:
            life.begin_first_rows(target)
            act(life)
            return
        life.begin(target)
        for _ in range(_KILLS):
            life.at_some_batch()
            act(life)
            life.compare()

    acts.__name__ = f"{kind}-{target}{act.__name__}"
    return scenario(kind, does=does, ends=ends)(acts)


for _kind, _target, _into, _server in _TARGETS:
    _sink, _times = f"SIGKILL of a sink into {_into}", f", {_KILLS} times"
    _of(_kind, _target, _kill, _sink + _times, "another start")
    _within = f"{_sink} within its first batch, of a million rows"
    _of(_kind, _target, _kill_in_first_rows, _within, "another start")
    if _server:
        _under = f"SIGKILL of {_server} under a sink into {_into}{_times}"
        _of(_kind, _target, _kill_target, _under, f"another start of {_server}")
        _both = f"{_sink} and of {_server}{_times}"
        _of(_kind, _target, _kill_both, _both, "another start of both")
    if _kind == "sink-bucket":
        _some = f"answers of {_server} to a sink into {_into} are errors, or are lost{_times}"
        _of(_kind, _target, _answer_badly, _some, "the store answers as usual")
