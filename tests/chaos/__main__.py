"""The command of the harness.

python -m chaos scenarios [--only kill,stop] [--seeds 1-3] [--report FILE]
python -m chaos rounds [--rounds 30] [--time ingest]
python -m chaos table FILE... [--page docs/reliability.md]
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

from chaos import report, rounds
from chaos.life import Life
from chaos.lives import Lasting, living, ordered
from chaos.plans import PLANS, Plan
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


def run(
    chosen: list[Scenario], seeds: list[int], file: Path | None, lasting: Lasting, plan: Plan
) -> int:
    """Lives for each seed, in which the scenarios come in an order of its own."""
    for seed in seeds:
        for order in ordered(chosen, seed):
            folder = Path(tempfile.mkdtemp(prefix="ikebana-chaos-"))
            with living(order[0].kind, folder, seed, lasting, plan) as life:
                for one in order:
                    if not _is_right(life, one, file):
                        # What is wrong once stays wrong.
                        life.close()
                        _keep(folder, kept := f"{folder}-{one.name}-{seed}")
                        print(f"verdict: WRONG, see {kept}", flush=True)
                        return 1
            shutil.rmtree(folder, ignore_errors=True)
    print("verdict: exact", flush=True)
    return 0


def _is_right(life: Life | Served, one: Scenario, file: Path | None) -> bool:
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
    rounds.add_arguments(commands.add_parser("rounds", help=rounds.__doc__.partition("\n")[0]))
    made = commands.add_parser("table", help="make a table of reports")
    made.add_argument("files", nargs="+", type=Path)
    made.add_argument("--page", type=Path, help="put it into this page")
    commands.add_parser("list", help="list the scenarios")
    given = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    match given.command:
        case "scenarios":
            lasting = Lasting(given.max_batch, given.longer)
            chosen, plan = _chosen(given.only), PLANS[given.plan]
            return run(chosen, _numbers(given.seeds), given.report, lasting, plan)
        case "rounds":
            return rounds.run(given)
        case "table":
            text = report.table(scenarios(), report.read(given.files))
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
