"""The modules that one message passes, from its topic to the output, in the processes of a run.

    python bench/one_message.py            a keyed message in JSON, an upsert, offset domain

The package is installed from its wheel, with a few lines at the end of `errors.py`, which every
process imports: they note the file of each function that is called while a flag is up.  The flag
goes up when a run has caught up; when the run and its workers have seen it, one message is
written, which changes a key, and the flag goes down when its two updates can be read.  So what the
run asks in between, such as the ends of topics, is counted, too.  Compiled modules have no such
calls and are not counted.  It fails if no process of the run, or no worker, has noted a function.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import psutil
from confluent_kafka import Consumer, Producer

from ikebana.processor.kafka.broker import running
from support.pipeline_processes import create
from support.shipped import installed
from support.waiting import wait_until

_NOTES = """
import os as _os, sys as _sys, threading as _threading, time as _time

_flag, _files, _up = _os.environ["ONE_MESSAGE"], set(), False


def _noted(frame, event, _):
    if _up and event == "call":
        _files.add(frame.f_code.co_filename)


def _looking():
    global _up
    while True:
        up = _os.path.exists(_flag)
        if up != _up:
            _up, notes = up, f"{_flag}.{_os.getpid()}"
            with open(f"{notes}.part", "w") as part:
                part.write("\\n".join([" ".join(_sys.orig_argv), *_files, "" if up else "end"]))
            _os.rename(f"{notes}.part", notes)
        _time.sleep(0.003)


def _look():
    _threading.Thread(target=_looking, daemon=True).start()


_threading.setprofile(_noted)
_sys.setprofile(_noted)
_os.register_at_fork(after_in_child=_look)
_look()
"""
_KEYS = 20
_KINDS = {"run", "worker"}
_WITHIN_S = 300.0


def main() -> None:
    """Write the message, and print the modules of each process."""
    with tempfile.TemporaryDirectory() as folder, running() as broker:
        place = Path(folder)
        by_command = _passed(place, broker.bootstrap_servers)
    modules = set().union(*by_command.values())
    for command, files in by_command.items():
        print(f"{command}: {len(files)}")
    rooms = defaultdict(list)
    for module in sorted(modules):
        rooms[str(Path(module).parent)].append(Path(module).stem)
    for room, names in rooms.items():
        print(f"  {room} {len(names)}: {', '.join(names)}")
    print(f"{len(modules)} modules in {len(rooms)} folders, {len(by_command)} kinds of process")


def _passed(place: Path, servers: str) -> dict[str, set[str]]:
    shipped, flag = installed(place, quick=True), place / "flag"
    (errors,) = shipped.folder.glob("lib/python*/site-packages/ikebana/errors.py")
    errors.write_text(errors.read_text() + _NOTES)
    file = place / "pipeline.json"
    file.write_text(
        json.dumps(
            {
                "pipeline": "one",
                "inputs": {"rows": {"topic": "rows", "format": {"key": "bytes", "value": "json"}}},
                "operators": {"current": {"upsert": "rows"}},
                "outputs": {"out": {"from": "current", "topic": "out"}},
                "time": "offset",
                "kafka": {"bootstrap.servers": servers},
                "run": {"checkpoint": str(place / "checkpoint")},
            }
        )
    )
    create(servers, "rows", 1)
    producer = Producer({"bootstrap.servers": servers})

    def write(key: int, value: int) -> None:
        producer.produce("rows", key=b"%d" % key, value=b'{"n":%d}' % value)
        producer.flush()

    for key in range(_KEYS):
        write(key, 0)
    command = [shipped.command, "run", str(file)]
    environ = {**os.environ, **shipped.environment(os.environ), "ONE_MESSAGE": str(flag)}
    # Else processes could import ikebana from there, without these lines.
    environ.pop("PYTHONPATH", None)
    with (
        open(place / "log", "wb") as log,
        contextlib.closing(_updates(servers)) as updates,
        subprocess.Popen(command, env=environ, stdout=log, stderr=log) as run,
    ):
        try:
            _take(updates, _KEYS)
            # The first change of a key is planned and compiled for.
            write(1, 1)
            _take(updates, 2)
            flag.touch()
            wait_until(lambda: _by_command(place).keys() >= _KINDS, _WITHIN_S, "all see the flag")
            write(1, 2)
            _take(updates, 2)
            flag.unlink()
            wait_until(lambda: _has_all_notes(place), _WITHIN_S, "all have written their notes")
        finally:
            run.terminate()
    by_command = _by_command(place)
    if silent := _KINDS - {kind for kind, files in by_command.items() if files}:
        sys.exit(f"no process of these kinds has noted a function: {', '.join(sorted(silent))}")
    return by_command


def _by_command(place: Path) -> dict[str, set[str]]:
    """The modules that the processes have noted so far, by kind."""
    by_command: dict[str, set[str]] = defaultdict(set)
    for notes in place.glob("flag.*[0-9]"):
        command, *files = notes.read_text().splitlines()
        paths = [each for each in files if "/ikebana/" in each and each.endswith(".py")]
        modules = {each.rpartition("/ikebana/")[2] for each in paths}
        by_command["worker" if "pyspark" in command else "run"] |= modules
    return by_command


def _has_all_notes(place: Path) -> bool:
    """Whether each process that has seen the flag go up, and is there, has seen it go down."""
    return all(
        notes.read_text().endswith("\nend") or not psutil.pid_exists(int(notes.suffix[1:]))
        for notes in place.glob("flag.*[0-9]")
    )


def _updates(servers: str) -> Generator[None, None, None]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "one",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["out"])
    deadline = time.monotonic() + _WITHIN_S
    with contextlib.closing(consumer):
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                yield
    raise TimeoutError("the update of the message did not come")


def _take(updates: Iterator[None], count: int) -> None:
    for _ in range(count):
        next(updates)


if __name__ == "__main__":
    main()
