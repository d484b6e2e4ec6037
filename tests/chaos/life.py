"""A broker, a pipeline under load, whoever runs it now, and the judgement after each fault."""

import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import psutil
from click.testing import CliRunner
from confluent_kafka import KafkaException

from chaos.brokers import ProxiedBroker
from chaos.proxy import Proxy
from chaos.scenario import Outcome, Result, Scenario
from ikebana.processor.cli.main import cli
from ikebana.processor.spark import owner
from support.output_judge import judge, offsets, truth_of
from support.pipeline_processes import Load, Pipeline, Run, create
from support.process_trees import name_of
from support.waiting import patient, wait_until

# Kafka aborts a transaction after this; what is stopped is stopped for longer.
_MAX_BATCH_S = 6
_LONGER_S = 3.0
# Longer than a pipeline waits for brokers, and starts.
RECOVERS_S = 180.0
# What a killed driver leaves notices its end by and by.
LEAVES_S = 60.0
SOURCE = "upserts"
_DONE = 0
_ENDS = 3


class Wrong(Exception):
    """What must not be."""


class Life:
    """One pipeline over many faults; `choice` is that of the scenario and the seed."""

    def __init__(
        self,
        folder: Path,
        broker: ProxiedBroker,
        proxy: Proxy,
        seed: int,
        *,
        max_batch_s: int = _MAX_BATCH_S,
        longer_s: float = _LONGER_S,
    ) -> None:
        self.stopped_s = max_batch_s + longer_s
        """How long faults last that last longer than a transaction may."""
        self.held_s = longer_s
        """How long others last."""
        self.folder = folder
        self.broker = broker
        self.proxy = proxy
        self.seed = seed
        self.servers = broker.bootstrap_servers
        self.choice = Random(seed)
        self.did: list[str] = []
        self.environment: dict[str, str] = {}
        # Every second life has a time for each record.
        self.pipeline = Pipeline(
            folder,
            broker.proxied_servers,
            "chaos",
            SOURCE,
            "ingest" if seed % 2 else "offset",
            settings={
                "heartbeat": "400ms",
                "retained_batches": 5,
                "max_batch": f"{max_batch_s}s",
                "restarts": 1000,
            },
            limit=4000,
        )
        create(self.servers, SOURCE, 3)
        self._run: Run | None = None
        self._killed = False
        self._older: list[Run] = []
        self._loads = 0

    @property
    def run(self) -> Run:
        """Who runs the pipeline now."""
        assert self._run is not None, "nobody has run it yet"
        return self._run

    def go(self, scenario: Scenario, *, judged: bool = True) -> Result:
        """Bring about a fault under load, see the pipeline recover, and judge all of it."""
        self.choice = Random(f"{scenario.name} {self.seed}")
        self.did = []
        result = Result(scenario.kind, scenario.name, self.seed, "WRONG", 0.0)
        load = self._load()
        try:
            self._closed()
            scenario.act(self)
            result.recovery_s, said = self._closed()
            load.stop()
            if judged:
                self.judge()
        except (AssertionError, Wrong, KafkaException, psutil.Error) as error:
            result.said = str(error)
            self.close()
        else:
            result.said = " / ".join(said)
            result.outcome = "ended" if said else "exact"
            if result.outcome not in scenario.accepts:
                result.outcome, result.said = "WRONG", f"it {result.outcome}: {result.said}"
        finally:
            load.give_up()
        result.did = ", ".join(self.did)
        return result

    def start(self) -> Run:
        """Start the pipeline anew."""
        if self._run is not None:
            self._older.append(self._run)
        self._run = self.pipeline.start(environment=self.environment)
        self._killed = False
        return self._run

    def killed(self) -> None:
        """Remember that the run did not end by itself."""
        self._killed = True

    def kill(self) -> None:
        """Kill all processes of the run."""
        self.run.kill()
        self.killed()

    def stop(self) -> None:
        """End the run between two batches."""
        if self.run.poll() is None:
            status = self.run.stop()
            if status != _DONE:
                raise Wrong(f"asked to stop, it ended with status {status}: {self._last_words()}")
        self.run.kill()
        self.killed()

    def close(self) -> None:
        """Leave nothing running."""
        for run in [*self._older, *([] if self._run is None else [self._run])]:
            for process in run.family.alive():
                with suppress(psutil.Error):
                    process.resume()
            run.kill()
        self._killed = True

    def processes(self, what: str) -> list[psutil.Process]:
        """The processes of the run: its `driver`, `jvm`, `worker`s, `owner`s, or `all`."""
        workers = self.run.workers() if what in ("worker", "owner") else []
        match what:
            case "driver":
                return [psutil.Process(self.run.pid)]
            case "jvm":
                return [p for p in self.run.family.alive() if name_of(p) == "java"]
            case "owner":
                return [p for p in workers if name_of(p) == owner.PROCESS_NAME]
            case "worker":
                return [p for p in workers if name_of(p) != owner.PROCESS_NAME]
            case "broker":
                assert self.broker.pid is not None
                return [psutil.Process(self.broker.pid)]
            case _:
                return self.run.family.alive()

    def one(self, what: str) -> psutil.Process:
        """One of the processes of a kind.

        Raises:
            Wrong: there is none.
        """
        if not (found := self.processes(what)):
            raise Wrong(f"there was no {what}")
        return self.choice.choice(found)

    @contextmanager
    def paused(self, processes: Iterable[psutil.Process]) -> Iterator[None]:
        """Stop processes for the length of a `with` block."""
        stopped = list(processes)
        if not stopped:
            raise Wrong("there was nothing to stop")
        for process in stopped:
            with suppress(psutil.Error):
                process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in stopped:
                with suppress(psutil.Error):
                    process.send_signal(signal.SIGCONT)

    def goes_on(self) -> bool:
        """Wait until the run closes a time, or ends; whether it has closed one."""
        before, begun = self.closed_times(), time.monotonic()
        while self.run.poll() is None:
            now = self.closed_times()
            if 0 <= before < now:
                return True
            before = max(before, 0) if now >= 0 else before
            if time.monotonic() - begun > patient(RECOVERS_S):
                raise Wrong(f"it hangs, without a batch for {RECOVERS_S:.0f} s: {self.run.text}")
            self.wait(0.1)
        return False

    def ended(self, within_s: float) -> bool:
        """Wait for the end of the run; whether it has ended by then."""
        deadline = time.monotonic() + patient(within_s)
        while self.run.poll() is None and time.monotonic() < deadline:
            self.wait(0.1)
        return self.run.poll() is not None

    def wait(self, seconds: float) -> None:
        """Let a fault last."""
        threading.Event().wait(seconds)

    def at_some_moment(self) -> None:
        """Let a fault begin anywhere in a batch."""
        self.wait(self.choice.uniform(0, 1))

    def closed_times(self) -> int:
        """How far the output's progress has come: an offset that grows with each batch."""
        with suppress(KafkaException):
            found = offsets(
                self.servers, [self.pipeline.target + ".progress"], committed_only=True
            )
            return sum(found.values())
        return -1

    def _closed(self) -> tuple[float, list[str]]:
        """Wait until another time is closed; the seconds that took, and how runs have ended."""
        said: list[str] = []
        begun = time.monotonic()
        while self._run is None or not self.goes_on():
            if self._run is not None and not self._killed:
                said.append(self._mourned())
            if len(said) >= _ENDS:
                raise Wrong("it ended again and again: " + " / ".join(said))
            self.start()
            begun = time.monotonic()
        return time.monotonic() - begun, said

    def _all_read(self) -> None:
        try:
            self.pipeline.wait_until_read(RECOVERS_S)
        except AssertionError:
            if self.run.poll() is None:
                raise
            raise Wrong(f"it ended later: {self._mourned()}") from None

    def _mourned(self) -> str:
        """Tell how a run has ended by itself.

        Raises:
            Wrong: it had no name for the reason.
        """
        text, status = self.run.text, self.run.poll()
        if "Traceback" in text or not (said := self._last_words()):
            raise Wrong(f"it ended with status {status} and no named error: {text}")
        return said

    def _last_words(self) -> str:
        said = [line for line in self.run.text.splitlines() if line.startswith("ikebana: ")]
        return said[-1].removeprefix("ikebana: ") if said else ""

    def _nothing_left(self) -> None:
        """What runs did not survive is gone, by itself."""
        for run in self._older:
            if run.poll() is None:
                continue
            try:
                wait_until(lambda run=run: not run.family.alive(), LEAVES_S, "")  # type: ignore[misc]
            except AssertionError:
                left = [" ".join(p.cmdline())[:100] for p in run.family.alive()]
                raise Wrong(f"processes are left over: {left}") from None
        self._older = [run for run in self._older if run.poll() is None]

    def judge(self) -> None:
        """Let the pipeline read everything, and compare it with what it should be.

        Raises:
            Wrong: it differs, or processes are left over.
        """
        self._all_read()
        self._nothing_left()
        bad = {
            topic: found
            for topic, truth in (
                (self.pipeline.target, truth_of(self.servers, SOURCE)),
                ("chaos.errors", {}),
            )
            if (found := judge(self.servers, topic, truth))
        }
        if bad:
            raise Wrong(f"the output is wrong: {bad}")
        options = ["check", self.pipeline.target, "--bootstrap-servers", self.servers]
        done = CliRunner().invoke(cli, options)
        if done.exit_code != 0:
            raise Wrong(f"ikebana check: {done.output}")

    def _load(self) -> "_Load":
        self._loads += 1
        load = _Load(self.servers, SOURCE, keys=200, rate=60, seed=self.seed * 1000 + self._loads)
        load.start()
        return load


class _Load(Load):
    """A load whose end is no error of a scenario that has failed for another reason."""

    def give_up(self) -> None:
        """End it, however it ends."""
        with suppress(AssertionError):
            self.stop()


def outcome_counts(results: Iterable[Result]) -> dict[Outcome, int]:
    """How many scenarios came to what."""
    counts: dict[Outcome, int] = {}
    for result in results:
        counts[result.outcome] = counts.get(result.outcome, 0) + 1
    return counts
