"""SIGINT and SIGTERM at every moment of `ikebana run` and `ikebana demo`: a table.

    python bench/signals.py                     everything, 138 runs
    python bench/signals.py --rotate            each moment once, signals and targets in turn
    python bench/signals.py --command run --moment idle batch --signal SIGINT --target group

A line for each: the status it has ended with, after how long, and what was wrong: another
status than the docs say, a traceback, a process that was left.  The exit status is 1
if anything was.
"""

import argparse
import itertools
import os
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from ikebana.processor.kafka.broker import running
from support.pipeline_processes import Pipeline, Run, create, produce, upserts
from support.signalled_runs import OF_DEMO, OF_RUN, Moment, Target, problems, signalled

RECORDS = 3_000
TARGETS: tuple[Target, ...] = ("process", "group", "all")


def main() -> None:
    """Go through the moments that are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--command", choices=["run", "demo"], nargs="*", default=["run", "demo"])
    parser.add_argument("--moment", nargs="*", default=[""], help="whose names have one of these")
    parser.add_argument("--rotate", action="store_true", help="each moment once")
    parser.add_argument("--target", choices=TARGETS, nargs="*", default=TARGETS)
    parser.add_argument(
        "--signal", choices=["SIGINT", "SIGTERM"], nargs="*", default=["SIGINT", "SIGTERM"]
    )
    asked = parser.parse_args()
    numbers = [signal.Signals[name] for name in asked.signal]
    moments = [
        (command, moment)
        for command, of in (("run", OF_RUN), ("demo", OF_DEMO))
        for moment in of
        if command in asked.command and any(text in moment.name for text in asked.moment)
    ]
    ways = list(itertools.product(numbers, asked.target))
    if asked.rotate:
        cases = [(*each, *ways[at % len(ways)]) for at, each in enumerate(moments)]
    else:
        cases = [(*each, *way) for each in moments for way in ways]
    found: Counter[bool] = Counter()
    print(f"{'command':8} {'moment':22} {'signal':8} {'to':8} {'status':>6} {'seconds':>7}  wrong")
    with tempfile.TemporaryDirectory() as folder, running() as broker:
        for at, (command, moment, number, target) in enumerate(cases):
            place = Path(folder) / str(at)
            place.mkdir()
            pipeline = _pipeline(place, broker.bootstrap_servers, f"signals-{at}")
            run = _started(command, pipeline, moment)
            outcome = signalled(run, pipeline, moment, number, target)
            wrong = problems(outcome, moment)
            found[bool(wrong)] += 1
            print(
                f"{command:8} {moment.name:22} {number.name:8} {target:8} {outcome.status:6} "
                f"{outcome.seconds:7.1f}  {'; '.join(wrong) or '-'}",
                flush=True,
            )
            if wrong:
                print(outcome.text, flush=True)
    print(f"{found[False]} as they should be, {found[True]} not")
    sys.exit(1 if found[True] else 0)


def _pipeline(folder: Path, servers: str, name: str) -> Pipeline:
    create(servers, name, 1)
    produce(servers, name, upserts(RECORDS, 500, Random(name)))
    return Pipeline(folder, servers, name + "-run", name, limit=250)


def _started(command: str, pipeline: Pipeline, moment: Moment) -> Run:
    if command == "run":
        return pipeline.start()
    environment = {**os.environ, "TMPDIR": str(pipeline.folder)}
    arguments = [sys.executable, "-m", "ikebana", "demo", "--flights", "20000"]
    return Run(arguments, environment, pipeline.folder / "demo.log", pipeline.folder / "once")


if __name__ == "__main__":
    main()
