"""The checkpoint that is lost, and what is made anew of topics, or restored from a backup."""

import shutil
from pathlib import Path

from chaos.damages import empty, put
from chaos.life import Life
from chaos.runs import Wrong, last_words
from chaos.scenario import scenario
from support.recoveries import recover

# Within this most of the state is made anew.
_MAKES_S = 20.0


def _ended(life: Life) -> None:
    if life.choice.random() < 0.5:
        life.did.append("stopped")
        life.stop()
    else:
        life.did.append("killed")
        life.kill()


def _lose(life: Life) -> None:
    for place in (life.pipeline.place, life.folder / "local"):
        empty(place)


def _recover(life: Life) -> None:
    """Run `ikebana recover`; the next start makes the state anew."""
    life.recovers = True
    recover(life.pipeline)


def _copied(life: Life, name: str) -> Path:
    copy = life.folder / name
    shutil.copytree(life.pipeline.place, copy)
    return copy


@scenario("loss", does="the loss of the checkpoint", ends="`ikebana recover`, and a start")
def loss_of_checkpoint(life: Life) -> None:
    life.at_some_moment()
    _ended(life)
    _lose(life)
    _recover(life)
    life.start()


@scenario(
    "loss",
    does="the loss of the checkpoint, and SIGKILL while the state is rebuilt",
    ends="`ikebana recover`, and two starts",
)
def loss_of_checkpoint_and_kill(life: Life) -> None:
    life.at_some_moment()
    life.kill()
    _lose(life)
    _recover(life)
    for _ in range(2):
        life.start()
        life.wait(life.choice.uniform(1, _MAKES_S))
        life.kill()


@scenario(
    "loss",
    does="the loss of the checkpoint, and again while the state is rebuilt",
    ends="`ikebana recover` each time, and a start",
)
def loss_of_checkpoint_twice(life: Life) -> None:
    life.kill()
    _lose(life)
    _recover(life)
    life.start()
    life.wait(life.choice.uniform(1, _MAKES_S))
    life.kill()
    _lose(life)
    _recover(life)
    life.start()


@scenario(
    "loss", does="the loss of the checkpoint of a stopped run", ends="its backup, and a start"
)
def loss_with_backup(life: Life) -> None:
    life.stop()
    copy = _copied(life, "backup")
    _lose(life)
    put(copy, life.pipeline.place)
    life.start()


@scenario(
    "loss",
    does="the loss of the checkpoint, and an older backup in its place",
    ends="its refusal by name, `ikebana recover`, and a start",
)
def loss_with_old_backup(life: Life) -> None:
    life.stop()
    copy = _copied(life, "backup")
    life.start()
    for _ in range(2):
        life.goes_on()
    _ended(life)
    _lose(life)
    put(copy, life.pipeline.place)
    life.start()
    if life.goes_on():
        raise Wrong("it went on with an old checkpoint")
    life.did.append(said := last_words(life.run.text))
    if "was rolled back" not in said:
        raise Wrong(f"it does not say what is wrong with the checkpoint: {life.run.text}")
    _lose(life)
    _recover(life)
    life.runs.killed()
    life.start()
