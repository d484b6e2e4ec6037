"""Edit a pipeline eight times in the life of one checkpoint, with kill -9 at random moments.

In each round records are sent, the file is edited, and `ikebana run` is started, killed with all
that it has started after a random time, perhaps twice, and then run to its end; eight edits of
eight kinds.  At the end all outputs are compared with a plain computation at every closed time.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from threading import Event

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from ikebana.processor.kafka.broker import running
from support.edited_life import Life, life


def lived(servers: str, folder: Path, name: str, choice: Random) -> list[str]:
    """Live one life; what is wrong in the end."""
    made, pause = Life(folder, servers, name, choice), Event()
    for definition in life():
        made.send(80)
        pipeline, kills = made.file(definition), 0
        while kills < 2 and choice.random() < 0.6:
            with pipeline.start("--once") as run:
                pause.wait(choice.uniform(2, 25))
                run.kill()
            kills += 1
            made.log()
            made.send(20)
        with pipeline.start("--once") as run:
            status = run.wait(1_200)
        if status:
            return [f"{definition.what}: the run ended with status {status}:\n{run.text}"]
        made.counts_from_now(definition)
        print(f"    {definition.what}, {kills} kills", flush=True)
    return made.wrong()


def main() -> int:
    """Parse the arguments; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ikebana-edits-"))
    bad = 0
    with running(folder / "broker") as broker:
        for number in range(given.seed, given.seed + given.rounds):
            begun, place = time.monotonic(), folder / f"life{number}"
            place.mkdir()
            wrong = lived(broker.bootstrap_servers, place, f"life{number}", Random(number))
            bad += bool(wrong)
            verdict = "exact" if not wrong else "WRONG: " + "; ".join(wrong[:5])
            print(f"seed {number}: {time.monotonic() - begun:.0f} s, {verdict}", flush=True)
    if not bad:
        shutil.rmtree(folder)
    print(f"{given.rounds - bad} of {given.rounds} lives exact", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
