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
