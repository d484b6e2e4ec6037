"""Files of the checkpoint and of the local database that are damaged, lost or old."""

import shutil
from collections.abc import Callable
from pathlib import Path

from chaos.damages import Damage, empty, put
from chaos.life import Life
from chaos.runs import Wrong
from chaos.scenario import Scenario, scenario


def _ended(life: Life) -> None:
    """End the run, with or without a chance to put things in order."""
    if life.choice.random() < 0.5:
        life.stop()
    else:
        life.kill()


def _files(life: Life, below: str, pattern: str = "*") -> list[Path]:
    found = life.pipeline.place / below
    return sorted(path for path in found.rglob(pattern) if path.is_file() and path.stat().st_size)


def _last(life: Life, log: str) -> list[Path]:
    numbers = life.pipeline.log(log)
    return [life.pipeline.place / log / str(number) for number in numbers[-2:]]


def _wipe(life: Life) -> None:
    empty(life.folder / "local")


def _damaged(
    name: str, does: str, pick: Callable[[Life], list[Path]], *, wiped: bool = False
) -> Scenario:
    """A file is damaged while the pipeline is stopped, and put back if it does not start."""

    def act(life: Life) -> None:
        _ended(life)
        if wiped:
            _wipe(life)
        if not (found := pick(life)):
            raise Wrong("there is no such file")
        damage = Damage(life, life.choice.choice(found))
        life.start()
        life.goes_on()
        damage.mend()

    act.__name__ = name
    ends = "the file put back, if the run ends"
    return scenario("file", does=f"damage of {does}", ends=ends, accepts=("exact", "ended"))(act)


state_cold = _damaged(
    "file_state_without_local",
    "a file of a shard, and no local database",
    lambda life: _files(life, "shards", "*.run"),
    wiped=True,
)
state_warm = _damaged(
    "file_state",
    "a file of a shard, beside its local database",
    lambda life: _files(life, "shards", "*.run"),
)
offset_log = _damaged("file_offset_log", "Spark's offset log", lambda life: _last(life, "offsets"))
commit_log = _damaged("file_commit_log", "Spark's commit log", lambda life: _last(life, "commits"))
spark_state = _damaged(
    "file_spark_state", "Spark's state store", lambda life: _files(life, "state")
)
metadata = _damaged(
    "file_metadata",
    "the checkpoint's metadata",
    lambda life: [life.pipeline.place / "ikebana.json", life.pipeline.place / "metadata"],
)


@scenario(
    "file", does="damage of the stopped pipeline's local database", ends="by itself: it is a cache"
)
def file_local_database(life: Life) -> None:
    _ended(life)
    found = sorted(p for p in (life.folder / "local").rglob("*") if p.is_file())
    for path in life.choice.sample(found, min(3, len(found))):
        Damage(life, path)


@scenario(
    "file",
    does="damage of the local database of a pipeline that runs, and SIGKILL of an owner",
    ends="by itself: it is a cache",
)
def file_local_database_in_use(life: Life) -> None:
    found = sorted(p for p in (life.folder / "local").rglob("*.sst") if p.is_file())
    for path in life.choice.sample(found, min(3, len(found))):
        Damage(life, path)
    life.wait(1)
    for process in life.processes("owner"):
        process.kill()


@scenario("file", does="an old copy of the local database is put back", ends="by itself")
def file_old_local_database(life: Life) -> None:
    _ended(life)
    local, old = life.folder / "local", life.folder / "old-local"
    shutil.copytree(local, old)
    life.start()
    life.goes_on()
    _ended(life)
    put(old, local)


@scenario(
    "file",
    does="an old copy of the checkpoint is put back",
    ends="the checkpoint itself put back",
    accepts=("ended",),
)
def file_old_checkpoint(life: Life) -> None:
    place = life.pipeline.place
    new = _aged(life, place, "checkpoint")
    if life.goes_on():
        raise Wrong("it went on with an old checkpoint")
    put(new, place)


@scenario(
    "file",
    does="old copies of one part of the checkpoint are put back",
    ends="the part itself put back, if the run ends",
    accepts=("exact", "ended"),
)
def file_old_part(life: Life) -> None:
    part = life.choice.choice(["offsets", "commits", "state", "shards", "offsets", "commits"])
    life.did.append(part)
    place = life.pipeline.place / part
    new = _aged(life, place, part)
    if life.goes_on():
        shutil.rmtree(new)
    else:
        put(new, place)


def _aged(life: Life, place: Path, name: str) -> Path:
    """Start with an old copy of a folder in its place; return where what it replaces lies."""
    old, new = life.folder / f"old-{name}", life.folder / f"new-{name}"
    _ended(life)
    shutil.copytree(place, old)
    life.start()
    life.goes_on()
    life.goes_on()
    _ended(life)
    shutil.copytree(place, new)
    put(old, place)
    life.start()
    return new
