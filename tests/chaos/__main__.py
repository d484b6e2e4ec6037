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
from random import Random

from chaos import report, rounds
from chaos.brokers import proxied
from chaos.disks import small_disks
from chaos.life import Life
from chaos.scenario import Scenario, scenarios


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


def run(chosen: list[Scenario], seeds: list[int], file: Path | None) -> int:
    """One life for each seed, in which all scenarios come in an order of its own."""
    wrong = 0
    for seed in seeds:
        order = sorted(chosen, key=lambda s: s.kind == "clock")
        if len(order) > 1:
            Random(seed).shuffle(order)
            # What clocks need slows everything that comes after.
            order.sort(key=lambda s: s.kind == "clock")
        folder = Path(tempfile.mkdtemp(prefix="ikebana-chaos-"))
        with small_disks(folder), proxied() as (broker, proxy):
            life = Life(folder, broker, proxy, seed)
            try:
                for one in order:
                    begun = time.monotonic()
                    result = life.go(one)
                    if file is not None:
                        report.append(file, result)
                    print(
                        f"{result.outcome:6} {one.name:38} seed {seed}  recovered in "
                        f"{result.recovery_s:5.1f} s of {time.monotonic() - begun:5.1f}  "
                        f"{result.did}  {result.said}",
                        flush=True,
                    )
                    if result.outcome == "WRONG":
                        wrong += 1
                        _keep(folder, f"{folder}-{one.name}-{seed}")
                        # What is wrong once stays wrong.
                        life.close()
                        return _told(wrong, folder)
            finally:
                life.close()
        shutil.rmtree(folder, ignore_errors=True)
    return _told(wrong, None)


def _keep(folder: Path, place: str) -> None:
    """Copy what a life has left, with what is on its small disks."""
    subprocess.run(["cp", "-r", str(folder), place], capture_output=True, check=False)


def _told(wrong: int, folder: Path | None) -> int:
    print("verdict:", "exact" if not wrong else f"WRONG, see {folder}-*", flush=True)
    return 1 if wrong else 0


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
            return run(_chosen(given.only), _numbers(given.seeds), given.report)
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
