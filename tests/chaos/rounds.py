"""Kill a pipeline at random moments under load, then judge what is in its topics.

Each round ends something with SIGKILL, or starts a rival: everything, the driver, the
JVM, a Python worker, the broker; start-up included.  With --executors the pipeline runs on
two executors, whose processes are killed as well.  The next instance starts at once, while
what is left of the one before may live for some seconds.  In between the local folder is
wiped or replaced by an old copy.  In the end the input is drained and every update, every
progress record and the final collection are checked.

It proves nothing about power failures: what the operating system has taken is kept.
"""

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import psutil

from chaos.executors import SHARDS, SPARK
from chaos.standalone import Standalone
from ikebana.processor.kafka.broker import Broker, running
from support.output_judge import judge, truth_of
from support.pipeline_processes import Load, Pipeline, Run, create, put_back
from support.process_trees import kill

# What is done, and how often.
KINDS = {"session": 3, "driver": 2, "jvm": 2, "worker": 4, "broker": 2, "rival": 2}
# The processes of executors, by their names in `Standalone.processes`.
ON_EXECUTORS = {"executor": 4, "owner": 4, "worker": 2, "daemon": 2, "host": 2}
# How long what is left of a killed instance may go on beside the next one.
ZOMBIES_S = 6.0
# Longer than a pipeline waits for brokers before it gives up.
ENDS_S = 150.0


@dataclass
class Chaos:
    """The pipeline, whoever runs it now, and what has been done to it."""

    pipeline: Pipeline
    broker: Broker
    choice: Random
    run: Run
    spark: Standalone | None = None
    done: Counter[str] = field(default_factory=Counter)
    stuck: int = 0
    deaths: Counter[str] = field(default_factory=Counter)
    runs: list[Run] = field(default_factory=list)
    timers: list[threading.Timer] = field(default_factory=list)
    pause: threading.Event = field(default_factory=threading.Event)

    def round(self) -> str:
        """Wait for a moment, do one thing, and say what."""
        when = self._moment()
        if self.run.poll() is not None:
            self._mourn()
            when = "found dead, started again, " + self._moment()
        kinds = KINDS if self.spark is None else {**KINDS, **ON_EXECUTORS}
        kind = self.choice.choices(list(kinds), weights=list(kinds.values()))[0]
        self.done[kind] += 1
        if self.spark is not None and kind in ON_EXECUTORS:
            return f"{kind:8}{when}{self._one_of(self.spark.processes(kind))}"
        return f"{kind:8}{when}{getattr(self, '_' + kind)()}"

    def close(self) -> None:
        """Leave nothing running."""
        for timer in self.timers:
            timer.cancel()
        for run in [*self.runs, self.run]:
            run.kill()

    def _moment(self) -> str:
        if self.choice.random() < 0.2:
            seconds = self.choice.uniform(0.3, 12)
            self.pause.wait(seconds)
            return f"{seconds:.1f} s after its start"
        last = max(self.pipeline.log("commits"), default=-1)
        deadline = time.monotonic() + ENDS_S
        while max(self.pipeline.log("commits"), default=-1) <= last:
            if self.run.poll() is not None:
                return "when it had ended"
            if time.monotonic() > deadline:
                self.stuck += 1
                print(f"no batch after {last}:\n{self.run.text}", flush=True)
                return "when it was stuck"
            self.pause.wait(0.05)
        seconds = self.choice.uniform(0, 4)
        self.pause.wait(seconds)
        return f"{seconds:.1f} s after a batch"

    def _mourn(self) -> None:
        """An instance has ended by itself: tell why, and start another."""
        said = [line for line in self.run.text.splitlines() if line.startswith("ikebana: ")]
        reason = said[-1] if said else self.run.text.strip().splitlines()[-1]
        self.deaths[f"status {self.run.poll()}: {reason[:150]}"] += 1
        self._next()

    def _next(self) -> None:
        self.runs.append(self.run)
        self.run = self.begun()

    def begun(self, *options: str) -> Run:
        """Start an instance."""
        # Executors have the Python of the tests.
        return self.pipeline.start(*options, environment={"PYSPARK_PYTHON": sys.executable})

    def _one_of(self, processes: list[psutil.Process]) -> str:
        if processes:
            kill([self.choice.choice(processes)])
        return "" if processes else ", none yet"

    def _session(self) -> str:
        self.run.kill()
        return self._again()

    def _driver(self) -> str:
        self.run.kill_driver()
        return self._again()

    def _jvm(self) -> str:
        there = self.run.kill_jvm()
        return self._again() if there else ", no JVM yet"

    def _worker(self) -> str:
        return "" if self.run.kill_worker(self.choice) else ", no worker yet"

    def _broker(self) -> str:
        seconds = self.choice.uniform(0, 3)
        self.broker.kill()
        self.pause.wait(seconds)
        self.broker.start()
        return f", away for {seconds:.1f} s"

    def _rival(self) -> str:
        """A second instance takes over from the one that runs."""
        older, begun = self.run, time.monotonic()
        self._next()
        while older.poll() is None and self.run.poll() is None:
            if time.monotonic() - begun > ENDS_S:
                older.kill()
                self.stuck += 1
                return ", the older one had to be killed"
            self.pause.wait(0.05)
        if older.poll() is None:
            return f", the newer one ended with status {self.run.poll()}"
        self.done[f"  the older one ended with status {older.poll()}"] += 1
        older.kill()
        return f", the older one ended with status {older.poll()}"

    def _again(self) -> str:
        """Start the next instance, perhaps with another local folder."""
        local, old = self.pipeline.folder / "local", self.pipeline.folder / "old"
        luck, done = self.choice.random(), ""
        if luck < 0.3:
            self.run.kill()
            shutil.rmtree(local, ignore_errors=True)
            done = "local folder wiped"
        elif luck < 0.6 and old.is_dir() and local.is_dir():
            self.run.kill()
            put_back(old, local)
            done = "old local folder"
        elif luck < 0.8 and local.is_dir():
            self.run.kill()
            shutil.rmtree(old, ignore_errors=True)
            shutil.copytree(local, old)
        else:
            timer = threading.Timer(ZOMBIES_S, self.run.kill)
            timer.start()
            self.timers.append(timer)
            done = "started over the old one"
        self._next()
        if not done:
            return ""
        self.done["  " + done] += 1
        return ", " + done


def torture(
    rounds: int, records: int, seed: int, domain: str, folder: Path, *, executors: bool
) -> bool:
    """Do all rounds, drain, judge; whether everything is exact."""
    choice, begun = Random(seed), time.monotonic()
    with ExitStack() as stack:
        broker = stack.enter_context(running(folder / "broker"))
        spark = _cluster(folder, stack) if executors else None
        servers = broker.bootstrap_servers
        create(servers, "upserts", 3)
        # A round takes some 15 s; the load goes on for as long as they really take.
        load = Load(servers, "upserts", keys=2000, rate=records / (rounds * 15), seed=seed)
        settings = {"shards": 3, "heartbeat": "400ms", "retained_batches": 2}
        work = folder / "pipeline"
        work.mkdir()
        pipeline = Pipeline(
            work, servers, "chaos", "upserts", domain, settings=settings, limit=4000
        )
        if spark is not None:
            there = pipeline.but(master=spark.master, shards=SHARDS)
            pipeline = replace(there, spark={**SPARK, "spark.driver.host": spark.host})
        load.start()
        chaos = Chaos(pipeline, broker, choice, pipeline.start(), spark)
        try:
            for number in range(1, rounds + 1):
                told = chaos.round()
                print(f"{number:3} {time.monotonic() - begun:5.0f} s  {told}", flush=True)
            load.stop()
        finally:
            chaos.close()
        drained = chaos.begun("--once")
        with drained:
            status = drained.wait(300)
        truth = truth_of(servers, "upserts")
        bad = judge(servers, pipeline.target, truth)
        bad_errors = judge(servers, "chaos.errors", {})
        batches = len(pipeline.progress())
    print(f"\n{domain}, seed {seed}: {rounds} rounds in {time.monotonic() - begun:.0f} s")
    print(f"{load.sent} records committed, {load.aborted} aborted; {batches} batches")
    for what, count in chaos.done.items():
        print(f"{count:6} {what}")
    for what, count in chaos.deaths.items():
        print(f"{count:6} ended by itself, {what}")
    if chaos.stuck:
        print(f"{chaos.stuck:6} did nothing for {ENDS_S:.0f} s")
    if status:
        print(f"draining ended with status {status}:\n{drained.text}")
    print(
        f"{len(truth)} keys in the end; wrong: {bad or 'nothing'}, errors: {bad_errors or 'none'}"
    )
    return not (bad or bad_errors or status or chaos.stuck)


def _cluster(folder: Path, stack: ExitStack) -> Standalone:
    """Start two executors on this machine's own network; they end with `stack`."""
    place = folder / "cluster"
    place.mkdir()
    spark = Standalone(place, None)
    stack.callback(spark.close)
    spark.start()
    return spark


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command `rounds`."""
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--records", type=int, default=90_000, help="about so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--executors", action="store_true", help="on two executors of Spark's")
    parser.add_argument("--time", choices=["ingest", "offset"], default="ingest")


def run(given: argparse.Namespace) -> int:
    """Do what the options say; return the exit status."""
    folder = Path(tempfile.mkdtemp(prefix="ikebana-chaos-"))
    exact = torture(
        given.rounds,
        given.records,
        given.seed,
        given.time,
        folder,
        executors=given.executors,
    )
    if exact:
        shutil.rmtree(folder)
    print("verdict:", "exact" if exact else f"WRONG, see {folder}", flush=True)
    return 0 if exact else 1
