"""The command of the harness.

python -m chaos scenarios [--only kill,stop] [--seeds 1-3] [--report FILE]
python -m chaos table [FILE...] [--page docs/reliability-table.md]
python -m chaos list
"""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from chaos import report
from chaos.delivered import Delivered
from chaos.life import Life
from chaos.lives import Lasting, living, ordered
from chaos.plans import EDITED, JOINED, PLANS, Plan
from chaos.runs import Unavailable
from chaos.scenario import Scenario, scenarios
from chaos.served import Served


def _chosen(only: str) -> list[Scenario]:
    wanted = [part for part in only.split(",") if part]
    known = scenarios().values()
    unknown = set(wanted) - {s.name for s in known} - {s.kind for s in known}
    if unknown:
        sys.exit(f"there is no scenario or class {', '.join(sorted(unknown))}; see `list`")
    return [s for s in known if not wanted or s.name in wanted or s.kind in wanted]


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


class _Run(NamedTuple):
    """What to bring about, and what comes of it; `goes_on` is with the next life."""

    chosen: list[Scenario]
    file: Path | None
    lasting: Lasting
    plan: Plan
    goes_on: bool

    def all(self, seeds: list[int]) -> int:
        """Lives for each seed, in which the scenarios come in an order of its own."""
        wrong = 0
        for seed in seeds:
            for order in ordered(self._left(seed), seed):
                if not self._is_exact(order, seed):
                    wrong += 1
                    if not self.goes_on:
                        return 1
        print(f"verdict: {'exact' if not wrong else f'WRONG in {wrong} lives'}", flush=True)
        return int(wrong > 0)

    def _left(self, seed: int) -> list[Scenario]:
        """What the report does not have yet, if there is more to come than the first mistake."""
        if not self.goes_on or self.file is None or not self.file.exists():
            return self.chosen
        known = {(r.name, r.plan) for r in report.read([self.file]) if r.seed == seed}
        edited = {EDITED[JOINED.name].name, JOINED.name}
        plans = {"edit": edited, "executor": edited}
        return [
            one
            for one in self.chosen
            if not any((one.name, plan) in known for plan in plans.get(one.kind, {self.plan.name}))
        ]

    def _is_exact(self, order: list[Scenario], seed: int) -> bool:
        """Bring about the faults of one life."""
        folder = Path(tempfile.mkdtemp(prefix="ikebana-chaos-"))
        try:
            with living(order[0].kind, folder, seed, self.lasting, self.plan) as life:
                for one in order:
                    if not _is_right(life, one, self.file):
                        # What is wrong once stays wrong.
                        life.close()
                        _keep(folder, kept := f"{folder}-{one.name}-{seed}")
                        print(f"verdict: WRONG, see {kept}", flush=True)
                        return False
        except Unavailable as error:
            names = ", ".join(one.name for one in order)
            print(f"not tried, {error}: {names}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        return True


def _is_right(life: Life | Served | Delivered, one: Scenario, file: Path | None) -> bool:
    begun = time.monotonic()
    result = life.go(one)
    if file is not None:
        report.append(file, result)
    print(
        f"{result.outcome:6} {one.name:38} seed {life.seed}  recovered in "
        f"{result.recovery_s:5.1f} s of {time.monotonic() - begun:5.1f}  "
        f"{result.did}  {result.said}  {' / '.join(result.restarted)}",
        flush=True,
    )
    return result.outcome != "WRONG"


def _keep(folder: Path, place: str) -> None:
    """Copy what a life has left, with what is on its small disks."""
    subprocess.run(["cp", "-r", str(folder), place], capture_output=True, check=False)


def main() -> int:
    """Parse the arguments; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(required=True, dest="command")
    one = commands.add_parser("scenarios", help="bring about faults one by one, and judge each")
    one.add_argument("--only", default="", help="names or classes, separated by commas")
    one.add_argument("--seeds", default="1", help="such as 1-3,7")
    one.add_argument("--report", type=Path, help="add a JSON line for each")
    one.add_argument("--plan", default="upsert", choices=PLANS, help="what the pipeline computes")
    one.add_argument("--max-batch", type=int, default=6, help="seconds a transaction may last")
    one.add_argument("--longer", type=float, default=3, help="seconds that faults last beyond")
    one.add_argument(
        "--go-on",
        action="store_true",
        help="with the next life after a mistake; leave out what the report has already",
    )
    made = commands.add_parser("table", help="make a table of reports")
    made.add_argument("files", nargs="*", type=Path, help="by default those that are kept")
    made.add_argument("--page", type=Path, help="put it into this page")
    commands.add_parser("list", help="list the scenarios")
    given = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    match given.command:
        case "scenarios":
            lasting = Lasting(given.max_batch, given.longer)
            chosen, plan = _chosen(given.only), PLANS[given.plan]
            asked = _Run(chosen, given.report, lasting, plan, given.go_on)
            return asked.all(_numbers(given.seeds))
        case "table":
            files = given.files or report.kept()
            if not files:
                sys.exit(f"no reports are kept in {report.KEPT}; name some")
            text = report.table(scenarios(), report.read(files))
            if given.page is None:
                print(text)
            else:
                report.written_into(given.page, text)
        case "list":
            for each in scenarios().values():
                print(f"{each.name:38} {each.kind:12} {each.does}; ends by: {each.ends}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
