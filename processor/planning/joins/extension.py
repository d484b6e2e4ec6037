"""Choose the variable that a path binds next, in joins with cyclic constraints.

Looking up one edge of a triangle after the other makes all paths of two edges, which on a
skewed graph are many more than the triangles.  Extending by a variable asks all inputs
that have it: the one with the fewest values proposes, the others say which are theirs.
The work of a row is then that of the fewest, and no intermediate result is larger than
the result of some part of the join could be (Ngo, Porat, Ré and Rudra, "Worst-case
optimal join algorithms", 2012; GenericJoin of the dogsdogsdogs project).
"""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any, NamedTuple


class Extension(NamedTuple):
    """A variable and the inputs that can restrict its values, in index order.

    For the inputs `completed` it is the last variable that was not bound.
    """

    variable: int
    inputs: tuple[int, ...]
    completed: frozenset[int]


def is_cyclic(inputs: Sequence[Set[int]]) -> bool:
    """Whether the constraints over these variables form a cycle.

    They do not if repeatedly removing variables of a single input, and inputs with all
    variables in another, removes everything (Graham, Yu, Özsoyoğlu).

    >>> is_cyclic([{0, 1}, {1, 2}])
    False
    >>> is_cyclic([{0, 1}, {1, 2}, {0, 2}])
    True
    >>> is_cyclic([{0, 1}, {1, 2}, {0, 2}, {0, 1, 2}])
    False
    """
    left = [set(variables) for variables in inputs]
    while True:
        before = [set(variables) for variables in left]
        for variables in left:
            variables -= {each for each in variables if sum(each in of for of in left) == 1}
        for at, variables in enumerate(left):
            if any(variables <= of for other, of in enumerate(left) if other != at):
                del left[at]
                break
        if left == before:
            return any(left)


def next_variable(
    left: Mapping[int, Set[int]], bound: Collection[int], preference: Callable[[int], Any]
) -> Extension | None:
    """The variable that the most inputs can restrict; None if no input can.

    `left` has the variables of each input that is not bound.  An input can restrict a variable
    as soon as another of its variables is bound.  Of several variables, it is the one with the
    most preferred input: less is better.
    """
    reachable = {at: of for at, of in left.items() if any(each in bound for each in of)}
    extensions = []
    for variable in sorted(set().union(*reachable.values()).difference(bound)):
        inputs = tuple(sorted(at for at, of in reachable.items() if variable in of))
        completed = frozenset(at for at in inputs if reachable[at] - {variable} <= set(bound))
        extensions.append(Extension(variable, inputs, completed))
    return min(
        extensions,
        key=lambda each: (-len(each.inputs), min(map(preference, each.inputs))),
        default=None,
    )
