"""Faults of `ikebana serve`, of its disk and its files, and of what it follows."""

import shutil
from collections.abc import Callable
from pathlib import Path

from chaos.damages import Damage, empty, put
from chaos.proxy import State
from chaos.runs import Wrong, paused, wait
from chaos.scenario import Outcome, Scenario, scenario
from chaos.served import Served
from chaos.small_disks import full
from support.pipeline_processes import produce

_MAY_END: tuple[Outcome, ...] = ("exact", "ended")


@scenario("serve", does="SIGKILL of `serve`", ends="another start")
def serve_kill(life: Served) -> None:
    life.at_some_moment()
    life.runs.kill()


@scenario("serve", does="SIGSTOP of `serve`", ends="SIGCONT")
def serve_stop(life: Served) -> None:
    life.at_some_moment()
    with paused([life.process()]):
        wait(life.stopped_s)


@scenario("serve", does="SIGKILL of the broker that `serve` follows", ends="another start of it")
def serve_kill_broker(life: Served) -> None:
    life.at_some_moment()
    life.broker.kill()
    wait(life.choice.uniform(0, 3))
    life.broker.start()


@scenario("serve", does="SIGKILL of `serve` and of the broker", ends="another start of both")
def serve_kill_both(life: Served) -> None:
    life.at_some_moment()
    life.broker.kill()
    life.runs.kill()
    life.broker.start()


def _link(state: State, does: str) -> Scenario:
    def act(life: Served) -> None:
        life.at_some_moment()
        life.proxy.become(state)
        try:
            wait(life.stopped_s)
        finally:
            life.proxy.become("open")

    act.__name__ = f"serve_link_{state}".replace("-", "_")
    return scenario("serve", does=f"`serve`: {does}", ends="an open link")(act)


cut = _link("cut", "nothing comes through, later all of it")
half_open = _link("half-open", "connections are made, what is sent vanishes")
refused = _link("refused", "connections end, and nobody listens")
slow = _link("slow", "20 kB a second each way")


@scenario(
    "serve", does="the disk of `serve` is full", ends="there is space again", accepts=_MAY_END
)
def serve_disk(life: Served) -> None:
    life.at_some_moment()
    with full(life.data):
        wait(life.stopped_s)


@scenario(
    "serve",
    does="the disk of `serve` is full when it starts",
    ends="there is space again",
    accepts=_MAY_END,
)
def serve_disk_at_start(life: Served) -> None:
    life.runs.kill()
    with full(life.data):
        life.runs.start()
        life.runs.ended(15)


@scenario("serve", does="an open transaction of another in a topic of `serve`", ends="its end")
def serve_transaction(life: Served) -> None:
    records = [(b"%d" % number, b'{"amount":9}') for number in range(50)]
    foreign = produce(
        life.broker.bootstrap_servers, "here", records, transaction=f"foreign-{life.seed}"
    )
    wait(3)
    foreign.abort_transaction(30)


def _files(life: Served, pattern: str) -> list[Path]:
    found = life.data.rglob(pattern)
    return sorted(path for path in found if path.is_file() and path.stat().st_size)


def _damaged(name: str, does: str, damage: Callable[[Served], None]) -> Scenario:
    def act(life: Served) -> None:
        life.at_some_moment()
        if life.choice.random() < 0.5:
            life.runs.stop()
        else:
            life.runs.kill()
        damage(life)
        life.runs.start()

    act.__name__ = name
    return scenario("serve", does=f"`serve`: {does}", ends="by itself: it is a cache")(act)


def _some(life: Served) -> None:
    if not (found := _files(life, "*")):
        raise Wrong("there is no file")
    for path in life.choice.sample(found, min(3, len(found))):
        Damage(life, path)


some = _damaged("serve_file", "damage of files of its stopped database", _some)
gone = _damaged("serve_no_files", "the loss of its database", lambda life: empty(life.data))


@scenario(
    "serve", does="`serve`: damage of its database while it runs", ends="by itself: it is a cache"
)
def serve_file_in_use(life: Served) -> None:
    found = _files(life, "*.sst")
    for path in life.choice.sample(found, min(3, len(found))):
        Damage(life, path)
    wait(2)
    life.runs.kill()


@scenario("serve", does="`serve`: an old copy of its database is put back", ends="by itself")
def serve_old_copy(life: Served) -> None:
    life.runs.kill()
    old = life.folder / "old"
    shutil.copytree(life.data, old)
    life.runs.start()
    life.goes_on()
    life.runs.kill()
    put(old, life.data)
    life.runs.start()
