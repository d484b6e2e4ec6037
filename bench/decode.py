"""Decoding, measured in process: CPU microseconds a message, from Kafka's bytes to packed rows.

    python bench/decode.py                            every format: about two minutes
    python bench/decode.py debezium-json --rounds 20
    python bench/decode.py debezium-avro --profile    by function

Rows have 30 columns, as in `pushdown.py`; those of `json` and `bytes` are of the main job, as in
`upsert.py`.  Nothing is pushed into decoding: all columns are read.  Each stage includes those
before it, and a figure is the least, the median and the greatest of all rounds:

* parse: what the library takes alone to make Python data of the value, for comparison.
* changes: the codec, from a message to changes with canonical bytes.
* upserts: with the checks of nesting and types, as lists of keys and values.
* packed: with the shards of the keys, packed as source tasks pack them.
"""

import argparse
import cProfile
import gc
import pstats
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from decode_messages import CASES, Case
from rich.console import Console
from rich.table import Table

from ikebana import Output, Plan, Upsert
from ikebana.processor.base.sharding import PartitionRange
from ikebana.processor.planning import planner
from ikebana.processor.topics.input_codec import codec_of
from ikebana.processor.topics.intake import Intake
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.slices import Decoding

_CONSOLE = Console(width=110)
_STAGES = ("parse", "changes", "upserts", "packed")
_SHARDS = 4
# As many messages as the reader of a topic hands on at once.
_AT_ONCE = 10_000


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("formats", nargs="*", help="cases that begin so; all if none is named")
    parser.add_argument("--messages", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--profile", action="store_true", help="the functions of the last stage")
    args = parser.parse_args()
    cases = [
        case for case in CASES if not args.formats or case.name.startswith(tuple(args.formats))
    ]
    if not cases:
        sys.exit(f"there are: {', '.join(case.name for case in CASES)}")
    table = Table("CPU us a message", "bytes", *_STAGES)
    for case in cases:
        messages = case.messages(args.messages)
        if args.profile:
            _profile(case, messages)
            continue
        size = statistics.mean(len(m.value or b"") + len(m.key or b"") for m in messages)
        found = _measured(case, messages, args.rounds)
        shown = [
            f"{min(costs):.2f} {statistics.median(costs):.2f} {max(costs):.2f}"
            for costs in (found[stage] for stage in _STAGES)
        ]
        table.add_row(case.name, f"{size:.0f}", *shown)
    if not args.profile:
        _CONSOLE.print(table)


def _stages(case: Case, messages: Sequence[Message]) -> dict[str, Callable[[], object]]:
    """What runs of each stage, over all messages."""
    plan = Plan("p", (case.source,), (Upsert("now", "in"),), (Output("out", "now", "out"),))
    physical = planner.physical(plan, optimized=False)
    codec = codec_of(case.source, physical.readings["in"], case.schemas)
    intake = Intake(case.source, codec, physical)
    parse, where = case.parse, ("t", 0)

    def packed() -> list[tuple[int, bytes]]:
        place = PartitionRange("t", 0, 0, 0, 0, each=False)
        decoding = Decoding(case.source, intake, place, _SHARDS)
        rows: list[tuple[int, bytes]] = []
        for at in range(0, len(messages), _AT_ONCE):
            rows += decoding.add(messages[at : at + _AT_ONCE])
        return [*rows, *decoding.finish()]

    return {
        "parse": lambda: [parse(m.value) for m in messages if m.value is not None],
        "changes": lambda: [codec.changes(m.key, m.value, None) for m in messages],
        "upserts": lambda: intake.upserts(messages, where),
        "packed": packed,
    }


def _measured(case: Case, messages: Sequence[Message], rounds: int) -> dict[str, list[float]]:
    """The costs of each stage in every round; the stages take turns."""
    stages = _stages(case, messages)
    costs: dict[str, list[float]] = {name: [] for name in stages}
    gc.disable()
    for _ in range(rounds + 1):
        for name, run in stages.items():
            begun = time.process_time()
            run()
            costs[name].append((time.process_time() - begun) / len(messages) * 1e6)
    gc.enable()
    # The first round fills caches.
    return {name: found[1:] for name, found in costs.items()}


def _profile(case: Case, messages: Sequence[Message]) -> None:
    run = _stages(case, messages)["packed"]
    run()
    profile = cProfile.Profile()
    profile.runcall(run)
    _CONSOLE.print(case.name)
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
