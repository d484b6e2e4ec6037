"""SIGKILL of sinks and of their targets, after which each table is compared at its frontier."""

from collections.abc import Callable

from chaos.delivered import Delivered
from chaos.scenario import Kind, Scenario, scenario

_TARGETS: tuple[tuple[Kind, str, str, str], ...] = (
    ("sink-files", "iceberg", "Iceberg tables", ""),
    ("sink-files", "delta", "Delta tables", ""),
    ("sink-files", "parquet", "Parquet files", ""),
    ("sink-database", "postgres", "PostgreSQL", "PostgreSQL"),
    ("sink-bucket", "iceberg", "Iceberg tables in an object store", "the object store"),
    ("sink-bucket", "delta", "Delta tables in an object store", "the object store"),
)


def _kill(life: Delivered) -> None:
    life.at_some_batch()
    life.kill_sink()
    life.compare()


def _kill_target(life: Delivered) -> None:
    life.at_some_batch()
    life.kill_server()
    life.start_server()
    life.compare()


def _kill_both(life: Delivered) -> None:
    life.at_some_batch()
    life.kill_server()
    life.kill_sink()
    life.start_server()
    life.compare()


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
        begin = life.begin_first_rows if act is _kill_in_first_rows else life.begin
        begin(target)
        act(life)

    acts.__name__ = f"{kind}-{target}{act.__name__}"
    return scenario(kind, does=does, ends=ends)(acts)


for _kind, _target, _into, _server in _TARGETS:
    _sink = f"SIGKILL of a sink into {_into}"
    _of(_kind, _target, _kill, _sink, "another start")
    _within = f"{_sink} within its first batch, of a million rows"
    _of(_kind, _target, _kill_in_first_rows, _within, "another start")
    if _server:
        _under = f"SIGKILL of {_server} under a sink into {_into}"
        _of(_kind, _target, _kill_target, _under, f"another start of {_server}")
        _of(_kind, _target, _kill_both, f"{_sink} and of {_server}", "another start of both")
