"""Faults of edits of a running plan, in the form of `rule_mutants.FAULTS`, each with its tests.

python bench/rule_mutants.py "edit:"
"""

LIVE = "tests/unit/test_live_edits.py"
EDITS = "tests/unit/test_edits.py"
JOINED = "tests/unit/test_edited_joins.py"
AGAIN = "tests/unit/test_reading_again.py"
LOGGED = "tests/unit/test_reading_log.py"
OWN = "tests/unit/test_own_topics.py"
SOURCE = "tests/unit/test_source_reading.py"

_EDITING = "processor/engine/editing.py"
_UNDO = "processor/engine/editing.py"
_MOVING = "processor/engine/dataflow.py"
_FLOW = "processor/engine/dataflow.py"
_RECLOCK = "processor/topics/reclock.py"
_OFFSETS = "processor/base/offsets.py"
_TRANSITION = "processor/base/transition.py"
_AGAIN = "processor/topics/replays.py"
_LOG = "processor/topics/input_times.py"
_EDITS = "processor/planning/edits.py"
_STEPS = "processor/topics/reclock.py"
_OWN = "processor/topics/replays.py"
_BACKFILL = "processor/planning/backfill.py"

# By what they are called: the test, the file, a text, and what is put in its place.
FAULTS: dict[str, tuple[str, str, str, str]] = {
    "edit: what comes meanwhile is not remembered": (
        LIVE,
        _MOVING,
        "        store_updates(self.flow.store, self.flow.of_moving)\n",
        "",
    ),
    "edit: what comes for parts that are still to come is remembered from a key on": (
        LIVE,
        _EDITING,
        "Undo(store, root).keep(updates, after)",
        'Undo(store, root).keep(updates, after or b"~")',
    ),
    "edit: only the part of now remembers": (
        LIVE,
        _EDITING,
        "        if after is not None:\n",
        "        if after:\n",
    ),
    "edit: what has come is added, not taken back": (
        LIVE,
        _UNDO,
        "counts[value] -= diff",
        "counts[value] += diff",
    ),
    "edit: keys that have gone meanwhile are forgotten": (
        LIVE,
        _UNDO,
        "*((key, _had((), updates), ()) for key, updates in since.items())",
        "",
    ),
    "edit: the second update of a key takes the place of the first": (
        LIVE,
        _UNDO,
        "counts[value] += diff",
        "counts[value] = diff",
    ),
    "edit: filled before others have what was sent to them": (
        JOINED,
        _MOVING,
        "self.is_filled and not self.flow.sends_before(editing.time)",
        "self.is_filled",
    ),
    "edit: filled while a join of before is on its way": (
        JOINED,
        _FLOW,
        "any(is_of_old_plan(name) for name in self.exchanges)",
        "False",
    ),
    "edit: an output that changes goes on while it is filled": (
        LIVE,
        _EDITING,
        "Interval(time, time if name in frozen else intervals[name].upper)",
        "intervals[name]",
    ),
    "edit: the batch after the last portion begins where others are": (
        LIVE,
        _EDITING,
        "editing.shown if transition.is_filled else {*transition.wrote}",
        "{*transition.wrote}",
    ),
    "edit: no batch says that all is filled": (
        LIVE,
        _TRANSITION,
        "return self.was is Phase.FILL and not self.fills",
        "return False",
    ),
    "edit: what is new does not wait": (
        LIVE,
        _RECLOCK,
        "            waits |= set(self.edited.frozen)\n",
        "            pass\n",
    ),
    "edit: read again, a late record is in time": (
        AGAIN,
        _AGAIN,
        "judged=log.within(topic, partition, place.start, until)",
        "judged=()",
    ),
    "edit: read again, all times are closed at once": (
        AGAIN,
        _AGAIN,
        "            again = max(before, times.log.closed(reached))",
        "            again = upper",
    ),
    "edit: read again, all waits until all is read": (
        AGAIN,
        _AGAIN,
        "            again = max(before, times.log.closed(reached))",
        "            again = before",
    ),
    "edit: read again, the log ends while it is asked": (
        AGAIN,
        _AGAIN,
        "        if source.name not in asked:\n            log = log.limited()\n",
        "        log = log.limited()\n",
    ),
    "edit: read again, what comes now is judged as what was": (
        AGAIN,
        _AGAIN,
        "    present = offset_in(topic, partition, start.positions, after.begins)",
        "    present = end",
    ),
    "edit: read again, a record is late twice": (
        AGAIN,
        "processor/topics/slices.py",
        "if self._ignored and not self._place.again:",
        "if self._ignored:",
    ),
    "edit: read again, an error without a key is told twice": (
        AGAIN,
        "processor/topics/slices.py",
        "() if place.reported else decoded.errors",
        "decoded.errors",
    ),
    "edit: read again, the frontier waits for it": (
        AGAIN,
        "processor/topics/batch_selection.py",
        "source.is_dated and source.name not in plan.backfills",
        "source.is_dated",
    ),
    "edit: read again, what waits counts twice": (
        AGAIN,
        "processor/checkpoint/parts.py",
        "if name not in again and part.waiting",
        "if part.waiting",
    ),
    "edit: read again, errors wait for it": (
        AGAIN,
        "processor/planning/progress.py",
        "tuple(name for name in edges(plan) if name not in again)",
        "tuple(edges(plan))",
    ),
    "edit: read again, errors are of times that are closed": (
        AGAIN,
        _FLOW,
        "since = max(lower, since or 0)",
        "pass",
    ),
    "edit: read again from the beginning, not from where it was read": (
        AGAIN,
        _AGAIN,
        "        if topic in first\n",
        "        if False\n",
    ),
    "edit: rows with other times are read again": (
        AGAIN,
        _BACKFILL,
        "origin_of(before, source) is None and",
        "False and",
    ),
    "edit: ranges of several frontiers are one": (
        LOGGED,
        _LOG,
        "(last.lower, last.latest) == (each.lower, each.latest)",
        "last.latest == each.latest",
    ),
    "edit: a frontier counts before its offsets are read": (
        LOGGED,
        _OFFSETS,
        ">= end\n",
        ">= end - 1\n",
    ),
    "edit: what was read of some partitions only has closed times": (
        LOGGED,
        _OFFSETS,
        "    return all(\n",
        "    return any(\n",
    ),
    "edit: taken back out of a topic, what the state has too counts twice": (
        OWN,
        _EDITS,
        "self.affected if sign > 0 else self.replaced - self.own_topics",
        "self.affected if sign > 0 else self.replaced",
    ),
    "edit: filled before all of a topic is taken back": (
        OWN,
        _STEPS,
        " and not replays.offsets_left(of.read_back)",
        "",
    ),
    "edit: what waits of the output of before stays": (
        OWN,
        _EDITING,
        "[*_new_parts(edit), *_waiting_parts(edit)]",
        "_new_parts(edit)",
    ),
    "edit: what waits stays if no time has been closed": (
        OWN,
        _STEPS,
        "fills=last.upper > 0 or last.batch >= 0",
        "fills=last.upper > 0",
    ),
    "edit: the source never learns that an edit at time 0 is filled": (
        SOURCE,
        _TRANSITION,
        "in (Phase.FILL, Phase.JOIN, Phase.WRITE, Phase.CLOSE)",
        "in (Phase.JOIN, Phase.WRITE, Phase.CLOSE)",
    ),
    "edit: shards do not know of an edit at time 0": (
        SOURCE,
        _TRANSITION,
        "bool(self.at or self.fills or self.is_filled)",
        "bool(self.at)",
    ),
    "edit: a topic is taken back from a snapshot and the beginning": (
        OWN,
        _OWN,
        "topic: {p: (after.get(p, 0), end) for p, end in ends.items()},",
        "topic: {p: (begins[p], end) for p, end in ends.items()},",
    ),
    "edit: a snapshot is taken back alone": (
        OWN,
        _OWN,
        "topic: {p: (after.get(p, 0), end) for p, end in ends.items()},",
        "",
    ),
    "edit: each batch takes a topic back from its beginning": (
        OWN,
        _OWN,
        "ReadBackSpan(at.to, ",
        "ReadBackSpan(at.start, ",
    ),
    "edit: a new as-of join begins without what the state has": (
        OWN,
        _MOVING,
        "wait(name, self._editing.time, is_first=is_first)",
        "wait(name, self._editing.time)",
    ),
}
