"""The explanation of a plan, as text and as a picture for notebooks."""

from ikebana.processor.planning.plan import Plan


class Explained:
    """The explanation of a plan: its inputs, state, outputs and costs."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __str__(self) -> str:
        from ikebana.processor.explain.explanation import explained
        from ikebana.processor.explain.text import text

        return text(explained(self._plan))

    __repr__ = __str__

    def _repr_svg_(self) -> str:
        from ikebana.processor.explain.explanation import explained
        from ikebana.processor.explain.svg import svg

        return svg(explained(self._plan))
