"""The error records that an edit retracts from the error topic, because no state has them.

The error topic always has the current errors.  If a part of the plan ends, its errors must be
retracted.  Most of them are in the state, or can be computed from it: errors of keys, and of steps
and reductions over contents of the state.  Only the error topic has the others:

* errors of messages of an input without a known key, and of all messages of an input in
  `mode: append` or `diffs`;
* errors of steps behind such an input, and behind an as-of join; and those of an as-of join;
* errors of an output, if its format cannot write a row.

So an edit that ends such a part reads the error topic up to the beginning of the edit, and
retracts the records of that part.  An edit after which errors are dropped retracts all records.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ikebana.codecs import canonical
from ikebana.processor.base.generations import shown
from ikebana.processor.base.rows import KeyedUpdate

# Reasons begin with the kind and the name of the part that made an error; names have no space.
_STEP, _OUTPUT, _INPUT = "operator ", "output ", "input "
_AT = " at time "


@dataclass(frozen=True, slots=True)
class EndedErrors:
    """The errors that end: all of them (`everything`), or those of these topics and writers.

    * `topics`: the topics that nothing reads any more;
    * `writers`: the beginnings of reasons, as in "output late".
    """

    everything: bool = False
    topics: frozenset[str] = frozenset()
    writers: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self.everything or bool(self.topics or self.writers)

    def of(self, updates: Iterable[KeyedUpdate]) -> list[KeyedUpdate]:
        """The updates of ended error records, among these, that no state has."""
        return [update for update in updates if self._has(update)]

    def _has(self, update: KeyedUpdate) -> bool:
        if self.everything:
            return True
        record = canonical.decode(update.value)
        writer = record["reason"].partition(": ")[0].partition(_AT)[0]
        if writer.startswith((_STEP, _OUTPUT)):
            return writer in self.writers
        # The state has the errors of keys.
        return update.key is None and (
            writer in self.writers if writer.startswith(_INPUT) else record["topic"] in self.topics
        )


def of_steps(ended: Iterable[str], others: Iterable[str]) -> frozenset[str]:
    """The beginnings of errors of ended operators or steps, except names that others share.

    Their names are those in the checkpoint; errors have the names that users know.
    """
    return frozenset(_STEP + name for name in {*map(shown, ended)}.difference(map(shown, others)))


def of_inputs(ended: Iterable[str]) -> frozenset[str]:
    """The beginnings of errors of inputs that share their topics."""
    return frozenset(_INPUT + name for name in ended)


def of_outputs(ended: Iterable[str]) -> frozenset[str]:
    """The beginnings of errors of outputs."""
    return frozenset(_OUTPUT + name for name in ended)
