"""Write steps in the form of the pipeline file, and lists, for explanations.

Texts of the user, such as SQL or the name of a column, may have any characters.  Control
characters would reach a terminal, and others would change the order of the text on the screen.
All these texts go through `printable` here, so each rendering has to escape only for its own
format.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from ikebana.processor.base.texts import printable
from ikebana.processor.linear.functions import name_of
from ikebana.processor.linear.scope import plain
from ikebana.processor.linear.steps import AnyStep, Arrange, Call, Negate, Sql

_INDENT = "  "


def one_line(sql: str) -> str:
    r"""Put SQL on one line, for use within a sentence.

    >>> one_line("a = 1\n  AND b")
    'a = 1 AND b'
    """
    lines = (line.strip().replace("\t", " ") for line in sql.splitlines())
    return printable(" ".join(filter(None, lines)))


def lines_of(label: str, sql: str) -> list[str]:
    r"""Put SQL under a label, with its own line breaks.

    >>> lines_of("where", "a = 1\n    AND b\n      AND c")
    ['where: a = 1', '  AND b', '    AND c']
    """
    first, *rest = [line for line in map(_spaced, sql.splitlines()) if line.strip()] or [""]
    least = min((len(line) - len(line.lstrip()) for line in rest), default=0)
    lines = [f"{label}: {first.strip()}", *(_INDENT + line[least:] for line in rest)]
    return [printable(line) for line in lines]


def step_lines(step: AnyStep) -> list[str]:
    """Write a step in the form of the pipeline file, its parts in the order of execution."""
    match step:
        case Negate():
            return ["negate: true"]
        case Arrange():
            return [f"by {printable(plain(', '.join(step.keys))) or 'nothing'}"]
        case Call():
            return [f"{step.kind}: {printable(name_of(step.function))}"]
        case Sql():
            return _sql_lines(step)


def steps_lines(steps: Sequence[AnyStep]) -> list[str]:
    """Write steps one after another, with numbers if there are several."""
    if len(steps) == 1:
        return step_lines(steps[0])
    lines = []
    for number, step in enumerate(steps, 1):
        first, *rest = step_lines(step)
        mark = f"{number}. "
        lines += [mark + first, *(" " * len(mark) + line for line in rest)]
    return lines


def named_lines(steps: Sequence[tuple[str, AnyStep]]) -> list[str]:
    """Write the steps of several operators, each operator's below its name."""
    lines = []
    for name, group in groupby(steps, key=lambda named: named[0]):
        lines.append(f"{name}:")
        lines += [_INDENT + line for line in steps_lines([step for _, step in group])]
    return lines


def listed(words: Iterable[str], last: str = "and") -> str:
    """Join words to a list in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *most, end = words
    return f"{', '.join(most)} {last} {end}" if most else end


def _sql_lines(step: Sql) -> list[str]:
    lines = []
    if step.flat_map is not None:
        name, text = step.flat_map
        lines += lines_of(f"flat_map: {name}", text)
    for condition in step.where:
        lines += lines_of("where", condition)
    for label in ("valid_from", "valid_until", "diff", "key"):
        text = getattr(step, label)
        if text is not None:
            lines += lines_of(label, text)
    if step.select is not None:
        plain = [name for name, text in step.select if _is_column(name, text)]
        if plain:
            lines.append("select: " + ", ".join(map(printable, plain)))
        for name, text in step.select:
            if name not in plain:
                lines += lines_of(f"select: {name}", text)
    return lines


def _is_column(name: str, text: str) -> bool:
    return text.strip() in (name, '"' + name.replace('"', '""') + '"')


def _spaced(line: str) -> str:
    return line.expandtabs(4).rstrip()


def figure(number: float) -> str:
    """Write a number: integers and numbers from 10 without decimals, smaller ones with one.

    >>> figure(3), figure(0.25), figure(47.9), figure(1290.0)
    ('3', '0.2', '48', '1,290')
    """
    if isinstance(number, int) or number >= 10:
        return f"{number:,.0f}"
    return f"{number:.1f}"
