"""The amounts of state that an edit reads, keeps and releases, if the state was counted."""

from ikebana.processor.checkpoint import parts
from ikebana.processor.checkpoint.edit_plan import StateSize
from ikebana.processor.checkpoint.state_figures import Figures, StateFigures
from ikebana.processor.kernels import arrange, hold, single_value
from ikebana.processor.planning.edits import Edit
from ikebana.processor.planning.joined import joined
from ikebana.processor.planning.joins.arrangements import Shared
from ikebana.processor.planning.operators.table import kind_of
from ikebana.processor.planning.plan import Plan


class PartSizes:
    """The counts of a state by the parts of plans; None if nothing was counted."""

    def __init__(self, figures: StateFigures | None) -> None:
        self._figures = figures
        self._parts = None if figures is None else figures.parts

    def keys_of_root(self, plan: Plan, root: str) -> int | None:
        """Count the keys that are read for the collection of a root.

        For a join, they are the keys of the arrangement of its first input.
        """
        stages = joined(plan)
        if (origin := stages.origins.get(root)) is not None:
            return self.keys_of_arrangement(origin, stages.arrangements[origin])
        return self._keys(_part_of(plan, root))

    def keys_of_arrangement(self, name: str, shared: Shared) -> int | None:
        """Count the keys of an arrangement, by its name among operators."""
        return self._keys(name if shared.is_own else arrange.PART.prefix + name)

    def bytes_of(self, operator: str) -> int | None:
        """Sum the bytes of all parts of an operator; 0 for one without state."""
        if self._parts is None:
            return None
        # Parts of outputs are left out, because an output may have the name of an operator.
        of_outputs = (hold.OUT.prefix, single_value.PART.prefix)
        return sum(
            each.bytes
            for part, each in self._parts.items()
            if part.rpartition(" ")[2] == operator and not part.startswith(of_outputs)
        )

    def of_edit(self, edit: Edit) -> StateSize | None:
        """Compute the size of the state, and how much of it an edit reads, keeps and releases."""
        if self._figures is None:
            return None
        if self._parts is None:
            return StateSize(self._figures.files_bytes)
        stays = parts.parts_of(edit.after)
        whole = sum(each.bytes for each in self._parts.values())
        staying = sum(each.bytes for name, each in self._parts.items() if name in stays)
        stages = joined(edit.after)
        read = [self.keys_of_root(edit.before, root) for root in edit.scanned]
        read += [
            self.keys_of_arrangement(name, stages.arrangements[name])
            for join, name in stages.origins.items()
            if join in edit.fresh and name not in edit.fresh
        ]
        return StateSize(
            self._figures.files_bytes,
            rows_to_read=sum(each or 0 for each in read),
            kept_bytes=staying,
            released_bytes=whole - staying,
        )

    def _keys(self, part: str) -> int | None:
        return None if self._parts is None else self._parts.get(part, Figures()).keys


def _part_of(plan: Plan, root: str) -> str:
    """Name the part of the state that has the collection of a root."""
    operator = next((o for o in plan.operators if o.name == root), None)
    part = None if operator is None else kind_of(operator).part(operator)
    return root if part is None else part.prefix + root
