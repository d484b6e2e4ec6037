"""Where a pipeline runs that is measured: this machine, the image's environment, executors."""

import compileall
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import psutil
import watch
from measure import Role, nothing_else

from support.shipped import Shipped, installed
from support.standalone_spark import WORKER, cluster
from support.waiting import wait_until

LOCAL, IMAGE = "local", "image"
# What our processes call themselves.
_NAMED = {"ikebana-owner": "owners", "ikebana-reader": "readers", "ikebana-host": "hosts"}
_END_S = 60.0
_EXECUTOR = "CoarseGrainedExecutorBackend"


class Place(NamedTuple):
    """A command `ikebana` with its environment, and settings that say where its tasks run.

    `others` finds the processes that work for it and are none of its own.
    """

    name: str
    command: Sequence[str] = (sys.executable, "-m", "ikebana")
    environment: Mapping[str, str] = {}
    run: Mapping[str, Any] = {}
    spark: Mapping[str, str] = {}
    others: Callable[[], Iterable[psutil.Process]] = nothing_else


HERE = Place(LOCAL)


@contextmanager
def place(name: str, folder: Path, spark: Mapping[str, str]) -> Iterator[Place]:
    """Make a place by its name: `local`, `image`, or a number of executors of one core each.

    Its folder is the same one each time; `spark` are settings for all of them.
    """
    if name == LOCAL:
        yield HERE._replace(run={"master": "local[2]"}, spark=spark)
    elif name == IMAGE:
        yield image(folder / "shipped")._replace(run={"master": "local[2]"}, spark=spark)
    else:
        with executors(int(name), folder, spark) as found:
            yield found


def image(folder: Path) -> Place:
    """The wheel, laid out as in the image and with the variables of the image.

    It is installed once for all that use this folder.
    """
    shipped = _shipped(folder)
    return Place(IMAGE, (shipped.command,), shipped.environment(os.environ))


@functools.cache
def _shipped(folder: Path) -> Shipped:
    found = installed(folder)
    # As pip does it: the variables of the image say that nothing is compiled later.
    compileall.compile_dir(str(found.folder), quiet=2)
    return found


@contextmanager
def executors(count: int, folder: Path, spark: Mapping[str, str] | None = None) -> Iterator[Place]:
    """Executors of one core each, which workers of a standalone cluster on this machine run."""
    with cluster(folder / f"cluster-{count}", count) as master:
        yield Place(
            str(count),
            run={"master": master},
            spark={
                "spark.driver.host": "127.0.0.1",
                "spark.executor.memory": "768m",
                **(spark or {}),
            },
            others=executors_here,
        )
        # What is left of them would be taken for those of the next place.
        wait_until(lambda: not any(executors_here()), _END_S, "the end of executors")


def executors_here() -> Iterator[psutil.Process]:
    """The executors that workers of this process's cluster run, with their Python processes."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if WORKER in child.cmdline():
                yield from child.children(recursive=True)


def part(process: psutil.Process, role: Role) -> str:
    """The part of a pipeline that a process is: a `kind` of `Watched`."""
    name = process.name()
    if name == "java":
        return "executors' JVMs" if role == "other" else "driver's JVM"
    if role == "command":
        return "run"
    if of := _NAMED.get(name):
        return of
    return "executors' Pythons" if role == "other" else "driver's Pythons"


def memory_by_executor() -> list[float]:
    """Memory of each executor here, its Python processes with it, in MiB."""
    jvms = [each for each in executors_here() if _is_executor(each)]
    return [pss_mib([jvm, *jvm.children(recursive=True)]) for jvm in jvms]


def pss_mib(processes: Iterable[psutil.Process]) -> float:
    """Memory of processes in MiB, where what they share with others counts in parts."""
    found = 0.0
    for process in processes:
        with suppress(OSError):
            found += watch.pss_mib(process.pid)
    return found


def _is_executor(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.name() == "java" and _EXECUTOR in " ".join(process.cmdline())
    return False
