"""Results as tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table.

    >>> table(["a", "b"], [["1", "2"]])
    ['| a | b |', '|---|---|', '| 1 | 2 |']
    """
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def cell(value: object) -> str:
    """A figure with as many digits as mean something.

    >>> cell(1234.5), cell(0.12345), cell(1000), cell(True)
    ('1,234', '0.123', '1,000', 'True')
    """
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{value:,}" if is_number(value) else str(value)


def is_number(value: object) -> bool:
    """Whether it is a figure."""
    return isinstance(value, int | float) and not isinstance(value, bool)
