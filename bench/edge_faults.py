"""Faults at the edges of types, formats, names and processes, as `rule_mutants.FAULTS` has them.

python bench/rule_mutants.py "edge:"
"""

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
}
