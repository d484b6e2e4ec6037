"""Mutants of what tells whole, partial and typed rows, each against the tests that should see it.

    python bench/mutants.py

Each is one change of a text, in a copy of the package.  One that survives is a rule that no test
holds.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

_ROOT = Path(__file__).resolve().parent.parent
_PARTS = ("arrangements", "codecs", "processor", "serving", "src", "tests", "pyproject.toml")
# The quick ones first: a mutant needs to be seen once.
_TESTS = (
    "tests/unit/test_debezium.py",
    "tests/unit/test_dms.py",
    "tests/unit/test_goldengate.py",
    "tests/unit/test_declared_columns.py",
    "tests/unit/test_column_types.py",
    "tests/property/test_pushdown.py",
)


class Mutant(NamedTuple):
    """A file with one text in the place of another."""

    file: str
    before: str
    after: str


MUTANTS = (
    Mutant("codecs/debezium.py", "needs.diffs and needs.columns is not None", "False"),
    Mutant(
        "codecs/debezium.py",
        "return {*new.row, *filter(self._rows.reads, new.absent)} <= old.row.keys()",
        "return True",
    ),
    Mutant(
        "codecs/dms.py",
        "self._all or (bool(declared) and not declared.absent(old))",
        "self._all",
    ),
    Mutant("codecs/dms.py", "None if key_alone else", "None if False else"),
    Mutant("codecs/dms.py", "looks=looks, nulls=True)", "looks=looks)"),
    Mutant(
        "codecs/goldengate.py",
        "whole = not self._images.declared.absent(before)",
        "whole = True",
    ),
    Mutant("codecs/maxwell.py", "absent = images.declared.absent(data)", "absent = ()"),
    Mutant(
        "codecs/canal.py",
        "() if self._full else self._images.declared.absent(image)",
        "()",
    ),
    Mutant(
        "codecs/change.py",
        "for name in self._types if name not in image)",
        "for name in self._types if False)",
    ),
    Mutant(
        "processor/topics/input_codec.py",
        "declared=declared_by(source)",
        "declared=Declared()",
    ),
    Mutant(
        "processor/topics/input_codec.py",
        "{*(columns_of_rows(source, reading) or ()), *checked_columns(source)}",
        "{*(columns_of_rows(source, reading) or ())}",
    ),
    Mutant(
        "processor/topics/intake.py",
        "refuse_strange(decoded, self._types, messages, origin)",
        "pass",
    ),
    Mutant("processor/topics/intake.py", "decoded.wide.append(len(keys))", "pass"),
    Mutant(
        "processor/topics/intake.py",
        "before = None if before is None else self._narrowed(before)",
        "pass",
    ),
    Mutant("processor/topics/input_codec.py", '("op", str)', '("op", str, "c")'),
)


def main() -> None:
    """Say of each mutant whether the tests see it; the exit status says whether all are seen."""
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="ikebana-mutants-") as folder:
        copy = Path(folder)
        for part in _PARTS:
            source = _ROOT / part
            if source.is_dir():
                shutil.copytree(source, copy / part, symlinks=True)
            else:
                shutil.copy(source, copy / part)
        for mutant in MUTANTS:
            seen = _is_seen(copy, mutant)
            survivors += not seen
            verdict = "killed" if seen else "SURVIVED"
            Console().print(f"{verdict}  {mutant.file}: {mutant.after}", markup=False)
    Console().print(f"{len(MUTANTS) - survivors} of {len(MUTANTS)} killed")
    sys.exit(bool(survivors))


def _is_seen(copy: Path, mutant: Mutant) -> bool:
    path = copy / mutant.file
    text = path.read_text()
    assert text.count(mutant.before) == 1, f"{mutant.file} has not one {mutant.before!r}"
    path.write_text(text.replace(mutant.before, mutant.after))
    try:
        # The faults are put into Python, beside which there is no compiled code then.
        without = {"PYTHONPATH": str(copy / "src"), "IKEBANA_COMPILED": "0"}
        environment = {**os.environ, **without}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *_TESTS]
        found = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, check=False
        )
    finally:
        path.write_text(text)
    # Anything but tests that fail is no verdict.
    assert found.returncode in (0, 1), found.stdout.decode()[-2_000:]
    return found.returncode == 1


if __name__ == "__main__":
    main()
