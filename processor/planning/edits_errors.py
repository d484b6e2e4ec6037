"""The error records that an edit takes back out of the error topic, since nothing else has them.

The error topic has, at all times, the errors of what there is.  With a part of the plan its
errors go.  Most of them are in the state, or come out of it once more: those of keys, and of steps
and reductions over what the state has.  Of the others the error topic alone knows:

* of messages of an input whose key is not known, and all of one in `mode: append` or `diffs`;
* of steps behind such an input, and behind an as-of join; and those of an as-of join itself;
* of an output, whose format cannot write what it shows.

So an edit with which such a part ends reads the topic once more, as far as it goes when the edit
begins, and takes back what is told of the part.  An edit after which errors are dropped takes back
all that there is.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ikebana.codecs import canonical
from ikebana.processor.base.generations import shown
from ikebana.processor.base.rows import KeyedUpdate

# What reasons begin with that name who has made an error; names have no space.
_STEP, _OUTPUT, _INPUT = "operator ", "output ", "input "
_AT = " at time "


@dataclass(frozen=True, slots=True)
class EndedErrors:
    """The errors that end: all of them (`everything`), or those that these have made.

    * `topics`: the topics that nothing reads any more;
    * `writers`: what reasons begin with, as in "output late".
    """

    everything: bool = False
    topics: frozenset[str] = frozenset()
    writers: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self.everything or bool(self.topics or self.writers)

    def of(self, updates: Iterable[KeyedUpdate]) -> list[KeyedUpdate]:
        """Those of some updates of error records that end, and that no state has."""
        return [update for update in updates if self._has(update)]

    def _has(self, update: KeyedUpdate) -> bool:
        if self.everything:
            return True
        record = canonical.decode(update.value)
        writer = record["reason"].partition(": ")[0].partition(_AT)[0]
        if writer.startswith((_STEP, _OUTPUT)):
            return writer in self.writers
        # The state has the error of a key.
        return update.key is None and (
            writer in self.writers if writer.startswith(_INPUT) else record["topic"] in self.topics
        )


def of_steps(ended: Iterable[str], others: Iterable[str]) -> frozenset[str]:
    """What errors begin with that operators or steps have made, and no others.

    Their names are those in the checkpoint, of which errors have what users know.
    """
    return frozenset(_STEP + name for name in {*map(shown, ended)}.difference(map(shown, others)))


def of_inputs(ended: Iterable[str]) -> frozenset[str]:
    """What errors begin with of inputs that are not the only ones of their topics."""
    return frozenset(_INPUT + name for name in ended)


def of_outputs(ended: Iterable[str]) -> frozenset[str]:
    """What errors begin with that outputs have made."""
    return frozenset(_OUTPUT + name for name in ended)
