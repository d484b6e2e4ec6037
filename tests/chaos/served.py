"""`ikebana serve` over the topics of a bank: what it serves is compared with the bank."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import msgspec
import psutil

import ikebana
from chaos import dumps
from chaos.bank import TOPICS, Amounts, Bank
from chaos.brokers import ProxiedBroker
from chaos.going import gone
from chaos.plans import UPSERT
from chaos.proxy import Proxy
from chaos.runs import Runs, Wrong, wait
from chaos.scenario import Result, Scenario
from chaos.starved import Standstill
from ikebana.errors import AwayError, IkebanaError
from ikebana.processor.kafka.broker import free_port
from ikebana.serving.reads import Reads, rows
from ikebana.serving.view import UnknownCollectionError, UnreadableTimeError
from support.pipeline_processes import Run
from support.waiting import patient

_RECOVERS_S = 180.0
_LOOKS = 12
# What a reader is told while there is nothing to read, or not yet again.
_NOT_NOW = (AwayError, UnreadableTimeError, UnknownCollectionError)


class _Row(msgspec.Struct):
    amount: int


class Served:
    """One server over many faults; the bank moves amounts meanwhile, and somebody reads."""

    def __init__(
        self, folder: Path, broker: ProxiedBroker, proxy: Proxy, seed: int, stopped_s: float
    ) -> None:
        self.folder = folder
        self.broker = broker
        self.proxy = proxy
        self.seed = seed
        self.stopped_s = stopped_s
        self.choice = Random(seed)
        self.did: list[str] = []
        self.plan = UPSERT
        self.data = folder / "local"
        self._stacks = folder / "stands-still.txt"
        self._url = f"http://127.0.0.1:{(port := free_port())}"
        self._port = port
        self._bank = Bank(broker.bootstrap_servers, seed)
        self._bank.start()
        self.runs = Runs(self._begun, self._stands_still)
        self._wrong: list[str] = []
        self._reads = 0

    def go(self, scenario: Scenario, *, judged: bool = True) -> Result:
        """Bring about a fault, see the server recover, and judge what it serves."""
        return gone(self, scenario, judged=judged)

    @contextmanager
    def under_load(self) -> Iterator[None]:
        """Read as of the newest time for the length of a `with` block."""
        end = threading.Event()
        reader = threading.Thread(target=self._read_until, args=[end], daemon=True)
        reader.start()
        try:
            yield
        finally:
            end.set()
            reader.join()

    def recovered(self) -> tuple[float, list[str]]:
        """Wait until it serves what is closed now."""
        return self.runs.until(self.goes_on)

    def goes_on(self) -> bool:
        """Wait until the run serves all that is closed now, or ends; whether it does."""
        target, still = self._bank.upper, Standstill(self.runs.now.family.alive)
        while self.runs.now.poll() is None:
            if self._newest() >= target:
                return True
            if still.seconds() > patient(_RECOVERS_S):
                raise self._stands_still(f"it does not come to {target}")
            wait(0.05)
        return False

    def _stands_still(self, how: str) -> Wrong:
        """Write down where the server stands; the error for it."""
        dumps.dump(self.runs.now.family.alive(), {"how": how}, self._stacks)
        return Wrong(f"it stands still, {how}; see {self._stacks}: {self.text}")

    @property
    def text(self) -> str:
        """What the run has printed."""
        return self.runs.now.text

    def process(self) -> psutil.Process:
        """The server."""
        return psutil.Process(self.runs.now.pid)

    def at_some_moment(self) -> None:
        """Let a fault begin anywhere."""
        wait(self.choice.uniform(0, 1))

    def judge(self) -> None:
        """Compare what is served as of some times with what the bank had then.

        Raises:
            Wrong: it differs, or a reader has seen something else meanwhile.
        """
        if self._wrong:
            raise Wrong(self._wrong[0])
        with ikebana.connect(self._url) as served:
            self._compared(served)
        with ikebana.open(self.data) as there:
            self._compared(there)
        self.runs.nothing_left()

    def close(self) -> None:
        """Leave nothing running."""
        self.runs.close()
        with suppress(AssertionError):
            self._bank.stop()

    def _compared(self, served: Reads) -> None:
        infos = {each.name: each for each in served.collections()}
        since = max(infos[topic].since or 0 for topic in TOPICS)
        newest = served.newest(*TOPICS)
        times = [newest, *(self.choice.randrange(since, newest + 1) for _ in range(_LOOKS))]
        for at in times:
            self._same(served, at)

    def _same(self, served: Reads, at: int) -> None:
        found: Amounts = {}
        for topic in TOPICS:
            for key, values in rows(served, topic, as_of=at):
                [(value, count)] = values.items()
                amount = msgspec.json.decode(value, type=_Row).amount
                if count != 1:
                    raise Wrong(f"{topic} has {value!r} {count} times at {at}")
                found[topic, int(key or b"-1")] = amount
        if found != (truth := self._bank.at(at)):
            differing = {key for key in found.keys() | truth if found.get(key) != truth.get(key)}
            raise Wrong(f"as of {at} it differs in {sorted(differing)[:10]}")

    def _read_until(self, end: threading.Event) -> None:
        while not end.wait(0.05):
            try:
                with ikebana.connect(self._url) as served:
                    self._same(served, served.newest(*TOPICS))
                self._reads += 1
            except IkebanaError:
                # What cannot be read now says nothing wrong.
                continue
            except Wrong as error:
                self._wrong.append(f"read meanwhile: {error}")
                return

    def _newest(self) -> int:
        with suppress(*_NOT_NOW), ikebana.connect(self._url) as served:
            return served.newest(*TOPICS)
        return -1

    def _begun(self) -> Run:
        log = self.folder / f"run-{len(list(self.folder.glob('run-*.log')))}.log"
        arguments = [
            *(sys.executable, "-m", "ikebana", "serve", *TOPICS, "--data", str(self.data)),
            *("--bootstrap-servers", self.broker.proxied_servers),
            *("--http", f"127.0.0.1:{self._port}", "--retain", "1000000"),
        ]
        environment = {**os.environ, **dumps.environment(self._stacks)}
        return Run(arguments, environment, log, self.folder / "once")
