"""Faults at the edges of types, formats, names and processes, as `rule_mutants.FAULTS` has them.

python bench/rule_mutants.py "edge:"
"""

BY_KEY = "tests/unit/test_outputs_by_key.py"

# By what they are called: the test, the file, a text, and what is put in its place.
FAULTS: dict[str, tuple[str, str, str, str]] = {
    # types: what SQL calls a type, and what an expression has.
    # codecs: values as connectors write them.
    # new: what is proposed for a topic.
    # values: nested values, numbers that are not finite, columns that nothing reads.
    # loud: what is said of inputs.
    "edge:loud a column that no message has is passed over": (
        "tests/unit/test_notices.py::test_a_declared_column",
        "processor/proposing/columns_seen.py",
        "absent = sorted(declared - counts.keys() - {*source.key})",
        "absent: list[str] = []",
    ),
    "edge:loud fields are looked for in no list": (
        "tests/unit/test_notices.py::test_fields_are_looked_for",
        "processor/proposing/notices.py",
        "        case List(of) | Array(of):",
        "        case Array(of):",
    ),
    "edge:loud some errors are all errors": (
        "tests/unit/test_notices.py::test_an_input_whose_messages_are_all",
        "processor/proposing/notices.py",
        "if not seen.read or seen.reasons.total() < seen.read:",
        "if not seen.reasons:",
    ),
    "edge:loud a declared column that is absent counts as null": (
        "tests/unit/test_notices.py::test_every_format",
        "processor/proposing/look.py",
        "declared=_AsTheyAre(wanted.declared)",
        "declared=wanted.declared",
    ),
    "edge:loud a notice is said each time": (
        "tests/unit/test_batch_display.py::test_a_notice_is_said_once",
        "processor/watching/display.py",
        "                self._said.add(each.name)\n",
        "",
    ),
    "edge:loud a notice that is gone keeps its series": (
        "tests/unit/test_metrics.py::test_a_notice_is_shown",
        "processor/ground/notice.py",
        "    found = {(kind, name): 0 for kind in KINDS for name in inputs}\n",
        "    found: dict[tuple[Kind, str], int] = {}\n",
    ),
    "edge:loud what messages have is in notices for everybody": (
        "tests/unit/test_metrics.py::test_a_notice_is_shown",
        "processor/watching/notes.py",
        "NoticeFigures(*each.name, each.words, ",
        "NoticeFigures(*each.name, each.line, ",
    ),
    "edge:loud times of different kinds have a common frontier": (
        "tests/unit/test_times_together.py",
        "serving/common_times.py",
        "    check_kinds(views)\n    return min",
        "    return min",
    ),
    "edge:loud magnitude counts more than what is told": (
        "tests/unit/test_times_together.py::test_what_is_told",
        "processor/timing/kinds_of_time.py",
        "    if recorded is not None:\n        return recorded\n",
        "",
    ),
    "edge:loud errors of other modules have no words of their own": (
        "tests/unit/test_restarts.py::test_every_error",
        "processor/spark/failures.py",
        "or kind is PlanError:",
        "or kind.__module__ != errors.__name__:",
    ),
    # names: names of columns, arguments of the Python API.
    "edge:names one text is its letters": (
        "tests/unit/test_texts_of_the_api.py",
        "processor/linear/settled.py",
        "    if isinstance(several, str):\n        return (several,)\n",
        "",
    ),
    "edge:names a key of one column is several keys": (
        "tests/unit/test_texts_of_the_api.py",
        "processor/linear/settled.py",
        "return (read,) if read else ()",
        "return tuple((each,) for each in read)",
    ),
    # kernels: negative counts, lost processes, recoveries.
    "edge:kernels: sizes count what was taken away, and not what was added": (
        "tests/property/test_joins_in_plans.py::test_a_circle_of_one_datum",
        "processor/kernels/arrange.py",
        "len({u.value for u in self._recent.of(key)})",
        "len({u.value for u in self._recent.of(key) if u.diff < 0})",
    ),
    # keys: unique keys, join plans, renamed columns.
    "edge:keys a left join keeps the key of its left whatever it meets": (
        BY_KEY,
        "processor/planning/unique_keys.py",
        "        if inner.is_unique(key):\n",
        "        if True:\n",
    ),
    "edge:keys what is computed of a key is one": (
        BY_KEY,
        "processor/planning/row_keys.py",
        "one_to_one=all(same)",
        "one_to_one=True",
    ),
    "edge:keys the first two rows of a partition are one": (
        BY_KEY,
        "processor/relational/ranking.py",
        "        if limit > 1:\n",
        "        if limit > 2:\n",
    ),
    "edge:keys rows with another key stay in their shards": (
        BY_KEY,
        "processor/planning/planner.py",
        'and any(hop for _, hop in inlet_paths(plan, Inlet("", output.source, ())))',
        "and not output",
    ),
    "edge:keys what an input declares is sure": (
        BY_KEY,
        "processor/relational/known.py",
        "facts = Facts(keys, declared(keys, self.inputs, self.operators.get(name), found))",
        "facts = Facts(*[declared(keys, self.inputs, self.operators.get(name), found)] * 2)",
    ),
}
