"""Run random pipelines with the code of two trees, and compare all that their outputs get.

    python bench/same_lives.py OLD [--seeds 3] [--examples 100] [TEST ...]

OLD is a tree of before, such as `git archive` makes, with its compiled modules copied into it.
Each tree runs its own property tests (edits, recoveries, rescalings and joins by default) with
the same seeds of Hypothesis.  Of each batch are compared what it logs, the updates and messages
of each output, the frontiers, and how much waits.  Fingerprints of plans are not, since a change
of what they hash changes no behaviour.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    "test_edits.py",
    "test_recovery.py",
    "test_new_joins.py",
    "test_joins_in_plans.py",
    "test_dated_inputs.py",
    "test_reading_again.py",
    "test_shared_topics.py",
)
_FILE, _EXAMPLES = "IKEBANA_SAME_LIVES", "IKEBANA_SAME_EXAMPLES"


class _Lives:
    """What the runs of one test have done so far."""

    def __init__(self) -> None:
        self.batches = 0
        self._hash = hashlib.sha256()

    def add(self, *parts: object) -> None:
        """Take something that both trees have to agree about."""
        self._hash.update(repr(parts).encode())

    def __str__(self) -> str:
        return f"{self.batches} batches {self._hash.hexdigest()[:16]}"


_lives = _Lives()


def _plain(offset: Any) -> str:
    """A batch as it is logged, without fingerprints."""
    plain = offset.to_json()
    del plain["plan"]
    return json.dumps(plain, sort_keys=True)


def _watch() -> None:
    from ikebana.testing import Run

    publish, edit, lose = Run._publish, Run._edit, Run._lose

    def published(self: Any, batch: Any, emitted: Any) -> None:
        publish(self, batch, emitted)
        _lives.batches += 1
        _lives.add(_plain(batch.after), self.frontiers, self.waiting, self.counted)
        for made in emitted:
            for name, updates in sorted(made.updates.items()):
                _lives.add(name, sorted(map(tuple, updates), key=repr))
            replayed = made.replayed
            joins, large = sorted(replayed.joins), sorted(replayed.large)
            _lives.add(joins, large, replayed.is_filled, made.filled)
        for name, messages in sorted(self.written.messages.items()):
            _lives.add(name, len(messages), messages[-20:])

    def edited(self: Any, written: Any, shards: int) -> None:
        try:
            edit(self, written, shards)
        except Exception as error:
            _lives.add("refused", str(error), getattr(error, "hint", None))
            raise
        _lives.add("edited", shards, len(self.stores), self.released)

    def lost(self: Any, written: Any) -> None:
        try:
            lose(self, written)
        except Exception as error:
            _lives.add("refused", str(error), getattr(error, "hint", None))
            raise
        _lives.add("recovers")

    Run._publish, Run._edit, Run._lose = published, edited, lost  # type: ignore[method-assign]


def pytest_configure() -> None:
    """As a plugin of pytest: watch runs, and draw as many examples as are asked for."""
    from hypothesis import Phase, settings
    from hypothesis.internal.conjecture import providers

    _watch()
    # Else examples have constants of the code, which is another one in each tree.
    providers._get_local_constants = lambda: providers._local_constants
    settings.register_profile(
        "same",
        settings.get_profile("quick"),
        max_examples=int(os.environ[_EXAMPLES]),
        phases=[Phase.explicit, Phase.generate],
        database=None,
    )
    settings.load_profile("same")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Write down what the runs of a test have come to."""
    global _lives
    _lives = _Lives()
    try:
        yield
    finally:
        with Path(os.environ[_FILE]).open("a") as found:
            found.write(f"{item.nodeid}: {_lives}\n")


def lines(tree: Path, tests: list[str], seed: int, examples: int) -> list[str]:
    """What a tree has to say for one seed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lives"
        environ = {
            **os.environ,
            "PYTHONPATH": f"{tree / 'src'}:{ROOT / 'bench'}",
            "PYTHONHASHSEED": "0",
            _FILE: str(file),
            _EXAMPLES: str(examples),
        }
        asked = [f"tests/property/{test}" for test in tests]
        options = ["-q", "-p", "same_lives", "-p", "no:cacheprovider", "-n", "0", "--timeout=0"]
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, f"--hypothesis-seed={seed}", *asked],
            cwd=tree,
            env=environ,
            stdout=sys.stderr,
        )
        return file.read_text().splitlines()


def main() -> int:
    """Compare two trees; 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("tests", nargs="*", default=[*TESTS])
    given = parser.parse_args()
    differ = 0
    for seed in range(given.seeds):
        old, new = (
            lines(tree, given.tests, seed, given.examples) for tree in (given.old.resolve(), ROOT)
        )
        for was, now in zip(old, new, strict=True):
            differ += was != now
            print(f"seed {seed}: {now}" if was == now else f"seed {seed}: was {was}, is {now}")
    print("the same" if not differ else f"{differ} tests differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
