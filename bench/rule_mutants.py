"""Faults that break a rule of docs/rules.md, or an edit, each with the tests that notice it.

    python bench/rule_mutants.py [TEXT ...]

A fault is a file with one text in the place of another.  All tests are collected once, in one
process; for each fault it forks, and the child runs the fault's tests with the code of the
changed file in the place of its own.  What survives is a rule that no test holds.
"""

import functools
import gc
import importlib
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import edge_faults
import edit_faults
import pytest
from rich.console import Console

_ROOT = Path(__file__).resolve().parent.parent

STARTING = "tests/unit/test_starting.py"
STEPS = "tests/unit/test_takeover_steps.py"
NEXT_STEP = "tests/unit/test_next_step.py"
BATCH = "tests/unit/test_of_a_batch.py"
INPUTS = "tests/unit/test_input_decisions.py"
CLIENTS = "tests/unit/test_kafka_clients.py"
ON_DISK = "tests/unit/test_state_on_disk.py"
MINTING = "tests/unit/test_minting.py"
JOINS = "tests/unit/test_batches_of_joins.py"
EDITED_JOINS = "tests/unit/test_edited_joins.py"
PLAN = "tests/unit/test_plan.py::test_a_plan_has_one_axis_of_time"
QUERY = "tests/unit/test_query.py::test_a_batch_that_fails_as_a_whole"

_START = "processor/checkpoint/takeover.py"
_NEXT_STEP = "processor/checkpoint/next_step.py"
_TAKE = "processor/checkpoint/takeover.py"
_CLAIM = "processor/checkpoint/takeover.py"
_TASK = "processor/checkpoint/commits.py"
_FILES = "arrangements/files.py"
_ROCKS = "arrangements/rocks.py"
_SHARD = "arrangements/shard.py"
_DIFF = "processor/topics/batch_selection.py"
_RECLOCK = "processor/topics/reclock.py"
_EXTEND = "processor/engine/joined_batch.py"

# By what they are called: the test, the file, a text, and what is put in its place.
FAULTS: dict[str, tuple[str, str, str, str]] = {
    "a file is not synced": (ON_DISK, _FILES, "                os.fsync(file.fileno())\n", ""),
    "the folder is not synced": (ON_DISK, _FILES, "        _sync(self.path)\n", ""),
    "written in place, not aside": (ON_DISK, _FILES, "/.{stem}-{uuid", "/{stem}-{uuid"),
    "the local database writes a log": (
        ON_DISK,
        _ROCKS,
        "_wal = True",
        "_wal = False",
    ),
    "a scan ends at a damaged block": (ON_DISK, _ROCKS, "                entry.status()\n", ""),
    "files go one batch early": (
        ON_DISK,
        _SHARD,
        "drop.batch <= batch - retained",
        "drop.batch <= batch - retained + 1",
    ),
    "drops are forgotten one batch early": (
        ON_DISK,
        _SHARD,
        "if drop.batch > batch - retained)",
        "if drop.batch > batch - retained + 1)",
    ),
    "what ends at the base is deleted": (
        ON_DISK,
        _SHARD,
        "versions[1] < base",
        "versions[1] <= base",
    ),
    "a base brings an older copy up to date": (
        ON_DISK,
        _SHARD,
        "if run.lower and state in",
        "if state in",
    ),
    "a new copy is built upon what is there": (
        ON_DISK,
        _SHARD,
        "self._local.empty(self.manifest.shard)",
        "self._local.open(self.manifest.shard)",
    ),
    "an error of a locked join is told for each portion": (
        f"{JOINS}::test_an_error_of_a_locked",
        "processor/engine/joining.py",
        "            errors += [self._error(reason, match) for match, reason in failing]\n",
        "            errors += [self._error(reason, match) for match, reason in failing]\n"
        "            yield Portion(self.next, [], errors)\n",
    ),
    "what paths give is not consolidated": (
        f"{JOINS}::test_what_the_paths",
        "processor/planning/kinds.py",
        "consolidated(some) if cancels else some",
        "some",
    ),
    "a value is proposed as often as it has data": (
        f"{JOINS}::test_a_value",
        _EXTEND,
        "if value not in seen:",
        "if True:",
    ),
    "validated as often as there are data": (
        f"{JOINS}::test_a_value",
        _EXTEND,
        "once=not completes",
        "once=False",
    ),
    "updates without a key are not exchanged": (
        f"{JOINS}::test_updates_without",
        "processor/base/sharding.py",
        "        placed = keyless if key is None else key\n",
        "        if key is None:\n            continue\n        placed = key\n",
    ),
    "updates without a key go anywhere": (
        f"{JOINS}::test_updates_without",
        "processor/base/sharding.py",
        "by_shard(updates, shards, NO_KEY)",
        'by_shard(updates, shards, b"")',
    ),
    "the store is told another begin": (
        f"{JOINS}::test_a_new_join_gets",
        "processor/engine/replaying.py",
        "encode(_Cursor(self.next, self.count))",
        "encode(_Cursor(b'', self.count))",
    ),
    "what a new join begins with waits": (
        f"{JOINS}::test_the_first_stage",
        "processor/engine/joined_batch.py",
        "self._hydrating[stage.join] + 1)",
        "self._hydrating[stage.join])",
    ),
    "more than fits is released": (
        f"{JOINS}::test_what_is_released",
        "processor/checkpoint/parts.py",
        "            left -= 1\n",
        "",
    ),
    "keys that are gone are not among the contents": (
        f"{JOINS}::test_contents",
        "processor/kernels/upsert.py",
        "heapq.merge(scan(self._store, start), gone, fresh)",
        "heapq.merge(scan(self._store, start), fresh)",
    ),
    "keys that go in this batch are not among the contents": (
        f"{JOINS}::test_contents",
        "processor/kernels/upsert.py",
        "heapq.merge(scan(self._store, start), gone, fresh)",
        "heapq.merge(scan(self._store, start), gone)",
    ),
    "what is looked up is not asked for whole rows": (
        f"{JOINS}::test_an_upsert_that",
        "processor/planning/planner.py",
        "if root in looked_up(plan):",
        "if False:",
    ),
    "Spark's state is not compared": (
        BATCH,
        _TASK,
        "last.epoch == holder.epoch and last.manifest != state",
        "False",
    ),
    "a process goes on from whatever it has kept": (
        BATCH,
        _TASK,
        "return decision if isinstance(decision, Compute) else None",
        "return Compute(state)",
    ),
    "a batch adopted whole is run": (BATCH, _TASK, " or tick.adopted:", ":"),
    "any later batch may be asked for": (
        BATCH,
        _TASK,
        "last.batch != tick.batch - 1",
        "last.batch > tick.batch",
    ),
    "a commit of another offset is adopted": (
        BATCH,
        _TASK,
        "if (last.offset, last.plan) == (tick.offset, tick.plan):",
        "if last.plan == tick.plan:",
    ),
    "a commit of another plan is adopted": (
        BATCH,
        _TASK,
        "if (last.offset, last.plan) == (tick.offset, tick.plan):",
        "if last.offset == tick.offset:",
    ),
    "files are kept for no batch": (
        BATCH,
        "processor/engine/task.py",
        "store.clean(tick.batch, job.retained)",
        "store.clean(tick.batch, 0)",
    ),
    "drops are kept for no batch": (
        BATCH,
        "processor/engine/task.py",
        "store.commit(tick.batch, job.retained)",
        "store.commit(tick.batch, 0)",
    ),
    "a shard may get two ticks": (
        BATCH,
        "processor/engine/task.py",
        "assert len(ticks) == 1",
        "assert len(ticks) >= 1",
    ),
    "transactions end after half of the longest batch": (
        CLIENTS,
        "processor/kafka/client.py",
        "str(int(timeout_s * 1000))",
        "str(int(timeout_s * 500))",
    ),
    "a range that is gone is read from where there is something": (
        CLIENTS,
        "processor/kafka/client.py",
        '"auto.offset.reset": "error"',
        '"auto.offset.reset": "earliest"',
    ),
    "a topic whose beginning is gone is read": (
        INPUTS,
        "processor/checkpoint/inputs.py",
        "if begin > 0:",
        "if False:",
    ),
    "a diff topic of another checkpoint is gone on with": (
        INPUTS,
        "processor/checkpoint/inputs.py",
        "if writer and record.checkpoint != writer:",
        "if False:",
    ),
    "an input that lost its end is let pass": (
        INPUTS,
        "processor/checkpoint/inputs.py",
        "if end < (position := offset_in(topic, partition, positions)):",
        "if False and (position := 0):",
    ),
    "the exchange topic's ends are asked for once": (
        CLIENTS,
        "processor/kafka/inputs.py",
        " or self._last[0] != batch:",
        ":",
    ),
    "the exchange topic is trimmed one batch early": (
        BATCH,
        "processor/kafka/own_topics.py",
        "<= self._retained:",
        "< self._retained:",
    ),
    "the exchange topic is trimmed up to the newest batch": (
        BATCH,
        "processor/kafka/own_topics.py",
        "self._begins.popleft()",
        "self._begins.pop()",
    ),
    "one shard that is done is enough": (
        BATCH,
        "processor/base/transition.py",
        "joins = set.intersection(",
        "joins = set.union(",
    ),
    "one shard that has told is enough": (
        BATCH,
        "processor/checkpoint/commits.py",
        "if all(commit.batch == batch for commit in present)",
        "if any(commit.batch == batch for commit in present)",
    ),
    "commits of any batch tell of hydration": (
        BATCH,
        "processor/checkpoint/commits.py",
        "for commit in present)\n        else NOTHING_REPLAYED,\n",
        "for commit in ())\n        else NOTHING_REPLAYED,\n",
    ),
    "transactional ids without the checkpoint's": (
        CLIENTS,
        "processor/kafka/transactions.py",
        '{TRANSACTIONS}{checkpoint}-{shard}"',
        '{TRANSACTIONS}-{shard}"',
    ),
    "the commits topic has retention": (
        CLIENTS,
        "processor/kafka/transactions.py",
        '"cleanup.policy": "compact",',
        '"cleanup.policy": "compact,delete",',
    ),
    "progress ends are last stable offsets": (
        CLIENTS,
        "processor/kafka/progress_topic.py",
        "topics.high_watermarks(",
        "topics.ends(",
    ),
    "progress counts the first shard only": (
        BATCH,
        "processor/kafka/progress_topic.py",
        "for commit in batch),",
        "for commit in batch[:1]),",
    ),
    "times are those of the first shard only": (
        BATCH,
        "processor/kafka/progress_topic.py",
        "        for commit in batch:\n",
        "        for commit in batch[:1]:\n",
    ),
    "any end of the partition ends a range": (
        CLIENTS,
        "processor/kafka/reader.py",
        "return span is not None and offset >= span.end",
        "return span is not None",
    ),
    "a range ends one record early": (
        CLIENTS,
        "processor/kafka/reader.py",
        "if last >= span.end - 1:",
        "if last >= span.end - 2:",
    ),
    "diff topics have the brokers' retention": (
        CLIENTS,
        "processor/kafka/own_topics.py",
        '    "retention.ms": "-1",\n    "retention.bytes": "-1",\n',
        "",
    ),
    "an output of a new join over an old one's topic": (
        STARTING,
        _START,
        "if last is not None and _is_new(history, output):",
        "if False:",
    ),
    "another number of partitions": (
        STARTING,
        _START,
        "if by_key and last is not None and",
        "if False and last is not None and",
    ),
    "a batch is adopted whole if one shard has it": (
        STEPS,
        _CLAIM,
        "offsets[0] if len(set(offsets)) == 1 else None",
        "offsets[0]",
    ),
    "published is the least of the outputs'": (
        STARTING,
        _START,
        "published=max(",
        "published=min(",
    ),
    "the lease is taken after everything is looked at": (
        STEPS,
        _TAKE,
        "    brokers.hold_lease()\n"
        "    before = history(plan, metadata, brokers, look, fences=True)\n",
        "    before = history(plan, metadata, brokers, look, fences=True)\n"
        "    brokers.hold_lease()\n",
    ),
    "a commit beyond the log": (STARTING, _START, "if commit.batch > logged.batch:", "if False:"),
    "progress beyond the log": (
        STARTING,
        _START,
        "if last is not None and last.batch > logged.batch:",
        "if False:",
    ),
    "outputs that were created again": (
        STARTING,
        _START,
        "(topic in existing and existing[topic].id == topic_id)",
        "topic in existing",
    ),
    "an unfinished batch of another plan": (
        NEXT_STEP,
        _NEXT_STEP,
        "unfinished=logged.batch > logged.committed,",
        "unfinished=False,",
    ),
    "an output of another checkpoint": (
        STARTING,
        _START,
        "if last is not None and last.checkpoint != metadata.id:",
        "if False:",
    ),
    "commits behind the commit log": (
        STARTING,
        _START,
        "if commit.batch < logged.committed:",
        "if False:",
    ),
    "no commits at all": (
        STARTING,
        _START,
        "if committed >= history.metadata.first_batch:",
        "if False:",
    ),
    "a last batch of another offset": (
        STARTING,
        _START,
        "and commit.offset != logged.offset.digest()",
        "and False",
    ),
    "another plan while updates are on their way": (
        NEXT_STEP,
        _NEXT_STEP,
        "between_operators=not is_settled(offset),",
        "between_operators=False,",
    ),
    "a plan that an older instance has overtaken": (
        NEXT_STEP,
        _NEXT_STEP,
        "return self.finishes or finishing(self.plan, logged) is None",
        "return True",
    ),
    "another plan while a join begins": (
        NEXT_STEP,
        "processor/base/transition.py",
        "return Phase.FILL in NEXT[self.phase]",
        "return Phase.FILL in NEXT[self.phase] or self.phase is Phase.JOIN",
    ),
    "a commit of another checkpoint": (
        STARTING,
        _START,
        "if commit.checkpoint != metadata.id or commit.epoch > metadata.epoch:",
        "if False:",
    ),
    "the commit is read before the shard is fenced": (
        STEPS,
        _TAKE,
        "        write = brokers.fence(first.shard)\n"
        "        claimed = claim(first, brokers.last_commit(first.shard), incarnation)\n",
        "        claimed = claim(first, brokers.last_commit(first.shard), incarnation)\n"
        "        write = brokers.fence(first.shard)\n",
    ),
    "shards are not fenced before their commits are read": (
        STEPS,
        _TAKE,
        "        brokers.fence(shard)\n        commits[shard]",
        "        commits[shard]",
    ),
    "a shard that fences us while we claim it is let go": (
        STEPS,
        _TAKE,
        "        except FencedError:\n            continue\n",
        "        except FencedError:\n            return claimed.offset\n",
    ),
    "an even newer incarnation is overwritten": (
        STEPS,
        _CLAIM,
        "if last.incarnation > incarnation:",
        "if False:",
    ),
    "ends are high watermarks": (
        CLIENTS,
        "processor/kafka/topics.py",
        "return _offsets(admin, partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)",
        "return _offsets(admin, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)",
    ),
    "an error commits what was produced so far": (
        CLIENTS,
        "processor/kafka/transactions.py",
        "                self._producer.abort_transaction(REQUEST_S)\n",
        "                self._producer.commit_transaction(REQUEST_S)\n",
    ),
    "a row is lost between the halves": (
        QUERY,
        "processor/linear/query.py",
        "self._with_failures(table.slice(half))",
        "self._with_failures(table.slice(half + 1))",
    ),
    "offset time beside inputs with times of their own": (
        PLAN,
        "processor/planning/plan_problems.py",
        'and plan.time == "offset":\n        yield "time"',
        'and False:\n        yield "time"',
    ),
    "milliseconds beside positions in a log": (
        PLAN,
        "processor/planning/plan_problems.py",
        "if len(clocks) > 1:",
        "if False:",
    ),
    "a batch more is read than needed": (
        MINTING,
        _DIFF,
        "            if record.upper >= upper:\n                break\n",
        "            if record.upper > upper:\n                break\n",
    ),
    "positions go beyond a batch that was read in part": (
        MINTING,
        _DIFF,
        "if record.upper <= upper:",
        "if True:",
    ),
    "reach ignores the limit": (
        MINTING,
        _DIFF,
        "if frontier > lower and limit is not None and size > limit:",
        "if False:",
    ),
    "the greatest time is the last one that is merged": (
        MINTING,
        "processor/topics/event_time.py",
        "max(time, of_topic.get(partition, time))",
        "time",
    ),
    "the greatest time is the last one of a batch": (
        MINTING,
        "processor/topics/event_time.py",
        "if counts and (greatest is None or time > greatest):",
        "if counts:",
    ),
    "new facts of a batch are not learned": (
        MINTING,
        "processor/topics/input_times.py",
        "add_times(new, facts.get(name, ()))",
        "pass",
    ),
    "sources are read in a batch that takes a portion": (
        MINTING,
        _RECLOCK,
        "        if not self.exchanges.all or (finishes and (edit.fills or plan.is_dated)):",
        "        if finishes and (edit.fills or plan.is_dated):",
    ),
    "hydration goes on while exchanges are left": (
        MINTING,
        _RECLOCK,
        "takes=(bool(self.joins) or edit.fills) and all_exchanges",
        "takes=bool(self.joins) or edit.fills",
    ),
    "what a join has begun with counts as shown": (
        EDITED_JOINS,
        "processor/topics/reclock.py",
        "min(frontiers.values(), default=0) <= edit.at",
        "min(frontiers.values(), default=0) < edit.at",
    ),
    "results of before stay in the shards of their last lookups": (
        EDITED_JOINS,
        "processor/engine/editing.py",
        "            if inlet in branch.exchanges:\n",
        "            if False:\n",
    ),
    "a join has begun while exchanges are left": (
        MINTING,
        _RECLOCK,
        "look.replayed.joins if exchanges.all else ()",
        "look.replayed.joins",
    ),
    "portions rounded down": (
        MINTING,
        _RECLOCK,
        "-(-count * most // backlog)",
        "(count * most // backlog)",
    ),
}

# Faults that make no difference, and why.
HARMLESS = {
    "far updates are held in blocks": "`hold.step` and `hold.step_in_blocks` let out the same "
    "updates (tests/property/test_hold.py); which is quicker depends on how far they are.",
    "who has proposed validates, too": "a value that a candidate has proposed is one that it has: "
    "its validation drops nothing, and costs an exchange.",
    "reads those at the lower, too (>= lower)": "a diff topic is read when its frontier is beyond "
    "the lower, so that a later record says what is read; the one at the lower says nothing then.",
}


class Faults:
    """A plugin of pytest's that runs collected tests once for each fault."""

    def __init__(self) -> None:
        self.survived: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all tests as they are, and then those of each fault."""
        console = Console()
        assert not _fails(session, tuple({tests for tests, *_ in FAULTS.values()}))
        for name, (tests, *fault) in FAULTS.items():
            noticed = _fails(session, (tests,), *fault)
            self.survived += [] if noticed else [name]
            console.print(f"{'noticed ' if noticed else 'SURVIVED'}  {name}", markup=False)
        console.print(f"{len(FAULTS) - len(self.survived)} of {len(FAULTS)} noticed")
        return True


def _fails(session: pytest.Session, tests: tuple[str, ...], *fault: str) -> bool:
    """Whether the tests fail whose names begin like these, in a child that has the fault."""
    child = os.fork()
    if child:
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        # Anything but tests that pass or fail is no verdict.
        assert ended in (0, 1), f"{fault} cannot be tried: {ended}"
        return bool(ended)
    try:
        if fault:
            _put_in(fault[0], _with_fault(*fault))
        items = [item for item in session.items if item.nodeid.startswith(tests)]
        assert items, f"{tests} has no tests"
        for item, after in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if session.testsfailed:
                break
        os._exit(bool(session.testsfailed))
    except BaseException:  # noqa: BLE001 - a child that returned would go on as its parent
        sys.excepthook(*sys.exc_info())
        os._exit(2)


def _with_fault(file: str, before: str, after: str) -> str:
    text = (_ROOT / file).read_text()
    assert text.count(before) == 1, f"{file} has {text.count(before)} times {before!r}"
    return text.replace(before, after)


def _put_in(file: str, text: str) -> None:
    """Give a module the functions and the tables that it has in another text."""
    module, changed = with_text(file, text)
    swapped = swap_functions(module, changed)
    for place, value in vars(module).items():
        new = vars(changed).get(place)
        if isinstance(value, dict) and place != "__builtins__" and value != new:
            value.clear()
            value.update(new or {})
            swapped += 1
    assert swapped, f"{file} does the same"


def with_text(file: str, text: str) -> tuple[types.ModuleType, types.ModuleType]:
    """A module of the package, and what it would be with another text."""
    name = "ikebana." + file.removesuffix(".py").replace("/", ".")
    module = importlib.import_module(name)
    changed = types.ModuleType(name)
    changed.__file__ = module.__file__
    exec(compile(text, str(module.__file__), "exec"), changed.__dict__)
    return module, changed


def swap_functions(module: types.ModuleType, changed: types.ModuleType) -> int:
    """Give the functions of a module the code of those of another; how many were different."""
    theirs = dict(_functions(changed, changed))
    swapped = 0
    for place, function in _functions(module, module):
        if function.__code__ != theirs[place].__code__:
            function.__code__ = theirs[place].__code__
            swapped += 1
    for each in gc.get_objects():
        if isinstance(each, functools._lru_cache_wrapper):
            each.cache_clear()
    return swapped


def _functions(module: types.ModuleType, of: Any) -> Iterator[tuple[str, types.FunctionType]]:
    """The functions and methods that a module defines, by their places."""
    for value in list(vars(of).values()):
        value = getattr(value, "fget", None) or getattr(value, "__func__", value)
        while hasattr(value, "__wrapped__"):
            value = value.__wrapped__
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, types.FunctionType):
            yield value.__qualname__, value
        elif isinstance(value, type):
            yield from _functions(module, value)


def main() -> None:
    """Say of each fault whether the tests notice it; the exit status says whether all are.

    Arguments choose the faults whose names or tests have one of them.
    """
    os.chdir(_ROOT)
    FAULTS.update(edit_faults.FAULTS | edge_faults.FAULTS)
    for name, (tests, *_) in list(FAULTS.items()):
        if sys.argv[1:] and not any(part in name or part in tests for part in sys.argv[1:]):
            del FAULTS[name]
    faults = Faults()
    files = sorted({tests.partition("::")[0] for tests, *_ in FAULTS.values()})
    ended = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *files], [faults])
    sys.exit(bool(ended or faults.survived))


if __name__ == "__main__":
    main()
