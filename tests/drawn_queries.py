"""Queries that are drawn from the grammar of views, against DuckDB at every closed time.

python -m tests.drawn_queries FIRST LAST
"""

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent))

from ikebana.processor.linear.bound_query import BindingError, SqlQueryError
from support.random_forms import Forms
from support.random_queries import TABLES, Drawing, history
from support.random_subqueries import Nesting
from support.sql_oracle import assert_answered

TIMES = 4
_GRAMMARS = (Drawing, Forms, Nesting)


def main(arguments: Sequence[str]) -> int:
    """Run a query for each number; returns 1 if an answer is wrong, or a query is refused."""
    parser = ArgumentParser(prog="python -m tests.drawn_queries")
    parser.add_argument("first", type=int, help="the number that draws the first query")
    parser.add_argument("last", type=int, help="the number that draws the last one")
    asked = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    # Ctrl-C ends the run, and what came of it so far is told.
    with suppress(KeyboardInterrupt):
        for number in range(asked.first, asked.last + 1):
            kind, told = outcome(Random(number))
            counts[kind] += 1
            if told:
                print(f"{number}: {kind}: {told}", flush=True)
    for kind, many in counts.most_common():
        print(f"{many:6} {kind}")
    return 1 if counts["wrong"] + counts["refused"] else 0


def outcome(choice: Random) -> tuple[str, str]:
    """What came of a query, and more about it if that is not as it should be."""
    query = choice.choice(_GRAMMARS)(choice).query()
    changes = history(choice, TIMES, stay=choice.randint(0, 4))
    try:
        assert_answered(TABLES, [query], changes, TIMES)
    except BindingError:
        # Some of what is drawn of subqueries is so.
        return "refused by DuckDB, too", ""
    except SqlQueryError as error:
        return "refused", f"{error}\n  {query}"
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is a defect to be listed
        return "wrong", f"{error!r:.2000}\n  {query}"
    return "right", ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
