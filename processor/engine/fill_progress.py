"""The progress of a shard in an edit: first parts of the state, then new joins, then outputs."""

from collections.abc import Collection, Sequence

from ikebana.processor.base.generations import shown
from ikebana.processor.checkpoint.commits import FillProgress
from ikebana.processor.engine.dataflow import Emitted
from ikebana.processor.planning.edits import Edit
from ikebana.processor.planning.joined import joined


def fill_progress(
    edit: Edit | None,
    emitted: Emitted,
    *,
    fills: bool,
    hydrating: Collection[str],
    writes: Sequence[str] = (),
) -> FillProgress | None:
    """Compute the progress after a batch that `fills`, or in which joins are `hydrating`.

    A batch that `writes` portions of outputs is at the last step.  Returns None for any other
    batch.  Joins of an edit from before any time was closed come without an edit.
    """
    if writes:
        written = sum(len(emitted.updates[name]) for name in writes)
        return FillProgress(0, 1, shown(writes[0]), written)
    if not fills and not hydrating:
        return None
    scanned = () if edit is None else edit.scanned
    joins = tuple(hydrating)
    if edit is not None:
        origins = joined(edit.after).origins
        joins = tuple(j.name for j in edit.after.joins if j.name in edit.fresh & origins.keys())
    done, keys = len(scanned), 0
    if fills:
        done, keys = emitted.filled or (0, 0)
    else:
        done += sum(join not in hydrating or join in emitted.hydrated for join in joins)
    names = [*scanned, *joins]
    if not names:
        return None
    return FillProgress(done, len(names), shown(names[min(done, len(names) - 1)]), keys)
