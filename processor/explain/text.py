"""Render an explanation as text for a terminal."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from ikebana.processor.base.texts import counted
from ikebana.processor.explain import estimates
from ikebana.processor.explain.estimates import Work
from ikebana.processor.explain.explanation import ALL, MEANINGS, Cost, Explanation
from ikebana.processor.explain.graph import Box, Graph
from ikebana.processor.explain.words import figure

_WIDTH = 96
_WARNINGS = "what could cost less"


def text(explanation: Explanation) -> str:
    """Render the explanation, with a line end at its end."""
    return "\n".join(_lines(explanation)) + "\n"


def brief(explanation: Explanation) -> str:
    """Render what the plan reads, keeps and writes, and what a change costs: about one screen."""
    return "\n".join(_brief_lines(explanation)) + "\n"


def _brief_lines(explanation: Explanation) -> Iterator[str]:
    yield from _head(explanation)
    yield "reads"
    for box in explanation.written.boxes:
        if box.kind == "input":
            # Those that are indented name single columns.
            lines = [line for line in box.lines if not line.startswith(" ")]
            yield from _wrapped(f"{box.title}: {'; '.join(lines)}")
    yield ""
    yield from _keeps(explanation)
    yield ""
    yield "writes"
    for box in explanation.run.boxes:
        if box.kind == "output":
            yield from _wrapped(f"{box.title}: {'; '.join(box.lines)}")
    yield ""
    yield estimates.TITLE
    yield from _table(explanation.estimates)
    if explanation.warnings:
        yield ""
        yield from _section(_WARNINGS, explanation.warnings)
    yield ""
    yield (
        "--full has the plan as written and as run, what is decoded, the meaning of each figure, "
        "and the settings"
    )


def _keeps(explanation: Explanation) -> Iterator[str]:
    """Name the parts of the plan that have state, by their kinds."""
    state: dict[str, list[str]] = {}
    for part, arrangements, *_ in explanation.costs:
        kind, _, name = part.partition(" ")
        if arrangements and part != ALL:
            state.setdefault(kind, []).append(name)
    total = next((cost for cost in explanation.costs if cost.part == ALL), None)
    if total is not None:
        exchanges = counted(total.exchanges, "exchange")
        yield f"keeps {counted(total.arrangements, 'arrangement')}, behind {exchanges}"
    for kind, names in state.items():
        yield from _wrapped(f"{kind} {', '.join(names)}")


def _head(explanation: Explanation) -> Iterator[str]:
    yield f"pipeline {explanation.name} ({explanation.fingerprint})"
    yield f"time: {explanation.time}"
    yield ""


def _lines(explanation: Explanation) -> Iterator[str]:
    yield from _head(explanation)
    yield "as written"
    for box in explanation.written.boxes:
        yield f"  {box.kind} {box.title}"
        yield from (f"    {line}" for line in box.lines)
    yield ""
    yield "as run"
    yield from _tree(explanation.run)
    sections = [
        ("what was pushed", explanation.pushed),
        ("what was not pushed", explanation.not_pushed),
    ]
    if explanation.warnings:
        sections.append((_WARNINGS, explanation.warnings))
    for title, sentences in sections:
        yield ""
        yield from _section(title, sentences)
    yield ""
    yield "what it costs"
    yield from _table(explanation.costs)
    yield from (f"  {line}" for line in explanation.sharing)
    yield from _meanings(MEANINGS)
    yield ""
    yield estimates.TITLE
    yield from _table(explanation.estimates)
    yield from _meanings(estimates.MEANINGS)
    yield ""
    if explanation.settings:
        yield "settings"
    yield from (f"  {name}: {value}" for name, value in explanation.settings)


def _tree(graph: Graph) -> Iterator[str]:
    """Write each box below the first box that leads to it; later ones only name it."""
    targets: dict[str, list[str]] = {}
    for arrow in graph.arrows:
        targets.setdefault(arrow.origin, []).append(arrow.target)
    boxes = {box.id: box for box in graph.boxes}
    led_to = {arrow.target for arrow in graph.arrows}
    seen: set[str] = set()

    def branch(box: Box, indent: str) -> Iterator[str]:
        if box.id in seen:
            yield f"{indent}→ {box.kind} {box.title} (above)"
            return
        seen.add(box.id)
        yield f"{indent}{'→ ' if box.id in led_to else ''}{box.kind} {box.title}"
        inner = indent + ("    " if box.id in led_to else "  ")
        yield from (f"{inner}{line}" for line in box.lines)
        for target in targets.get(box.id, ()):
            yield from branch(boxes[target], inner)

    for box in graph.boxes:
        if box.id not in led_to:
            yield from branch(box, "  ")


def _section(title: str, sentences: Sequence[str]) -> Iterator[str]:
    yield title
    for sentence in sentences:
        yield from _wrapped(sentence, "  - ")
    if not sentences:
        yield "  nothing"


def _wrapped(sentence: str, first: str = "  ") -> list[str]:
    return textwrap.wrap(
        sentence,
        _WIDTH,
        initial_indent=first,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _meanings(of: Mapping[str, str]) -> Iterator[str]:
    for word, meaning in of.items():
        yield from textwrap.wrap(
            f"{word}: {meaning}", _WIDTH, initial_indent="  ", subsequent_indent="    "
        )


def _table(rows: Sequence[Cost] | Sequence[Work]) -> Iterator[str]:
    width = max((len(name) for name, *_ in rows), default=0)
    heads = rows[0].heads() if rows else ()
    yield f"  {'':{width}}  {'  '.join(heads)}"
    for name, *numbers in rows:
        cells = (
            f"{figure(number):>{len(head)}}" for number, head in zip(numbers, heads, strict=True)
        )
        yield f"  {name:{width}}  {'  '.join(cells)}"
