"""Run files of sqllogictest, and count what came of their queries.

python -m tests.sqllogictest FILE…
"""

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sqllogictest.records import FormatError, read
from sqllogictest.runner import Kind, Outcome, drawn, grouped, outcomes

_TOLD = (Kind.WRONG, Kind.CRASHED, Kind.REFUSED)


def main(arguments: Sequence[str]) -> int:
    """Run the files; returns 1 if an answer is wrong, or a query has ended with a defect."""
    parser = ArgumentParser(prog="python -m tests.sqllogictest")
    parser.add_argument("files", nargs="+", type=Path, help="files, or folders of .test files")
    parser.add_argument("--draw", type=int, help="how many queries of each file, at random")
    parser.add_argument("--seed", default="0", help="another one draws other queries")
    parser.add_argument("--show", choices=[each.name for each in Kind], action="append")
    given = parser.parse_args(arguments)
    shown = {Kind[each] for each in given.show or ("WRONG", "CRASHED")}
    counts: Counter[Kind] = Counter()
    reasons: Counter[tuple[Kind, str]] = Counter()

    def run(file: Path) -> None:
        try:
            found = list(read(file))
        except FormatError as error:
            print(error, file=sys.stderr)
            return
        only = given.draw and drawn(found, given.draw, f"{given.seed} {file.name}")
        for outcome in outcomes(found, only):
            counts[outcome.kind] += 1
            if outcome.kind in _TOLD:
                reasons[outcome.kind, grouped(outcome.reason)] += 1
            if outcome.kind in shown:
                _print(outcome)

    # Ctrl-C ends the run, and what came of it so far is told.
    with suppress(KeyboardInterrupt):
        for path in given.files:
            for file in sorted(path.rglob("*.test*")) if path.is_dir() else [path]:
                run(file)
    for kind in Kind:
        print(f"{counts[kind]:6} {kind}")
    for (kind, reason), many in reasons.most_common():
        if kind is Kind.REFUSED:
            print(f"{many:6}   {reason}")
    return 1 if counts[Kind.WRONG] + counts[Kind.CRASHED] else 0


def _print(outcome: Outcome) -> None:
    print(f"{outcome.query.place}: {outcome.kind}: {outcome.reason}\n  {outcome.query.sql}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
