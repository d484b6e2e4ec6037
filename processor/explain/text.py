"""Render an explanation as text for a terminal."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from ikebana.processor.explain import costs, estimates
from ikebana.processor.explain.costs import Cost
from ikebana.processor.explain.estimates import Work
from ikebana.processor.explain.explanation import Explanation
from ikebana.processor.explain.graph import Box, Graph
from ikebana.processor.explain.words import figure

_WIDTH = 96


def text(explanation: Explanation) -> str:
    """Render the explanation, with a line end at its end."""
    return "\n".join(_lines(explanation)) + "\n"


def _lines(explanation: Explanation) -> Iterator[str]:
    yield f"pipeline {explanation.name} ({explanation.fingerprint})"
    yield f"time: {explanation.time}"
    yield ""
    yield "as written"
    for box in explanation.written.boxes:
        yield f"  {box.kind} {box.title}"
        yield from (f"    {line}" for line in box.lines)
    yield ""
    yield "as run"
    yield from _tree(explanation.run)
    sections = [
        ("what was pushed", explanation.pushed),
        ("what was not pushed", explanation.kept),
    ]
    if explanation.warnings:
        sections.append(("what could cost less", explanation.warnings))
    for title, sentences in sections:
        yield ""
        yield title
        for sentence in sentences or ("nothing",):
            yield from textwrap.wrap(
                sentence,
                _WIDTH,
                initial_indent="  - " if sentences else "  ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
    yield ""
    yield "what it costs"
    yield from _table(explanation.costs)
    yield from (f"  {line}" for line in explanation.sharing)
    yield from _meanings(costs.MEANINGS)
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
    told: set[str] = set()

    def branch(box: Box, indent: str) -> Iterator[str]:
        if box.id in told:
            yield f"{indent}→ {box.kind} {box.title} (above)"
            return
        told.add(box.id)
        yield f"{indent}{'→ ' if box.id in led_to else ''}{box.kind} {box.title}"
        inner = indent + ("    " if box.id in led_to else "  ")
        yield from (f"{inner}{line}" for line in box.lines)
        for target in targets.get(box.id, ()):
            yield from branch(boxes[target], inner)

    for box in graph.boxes:
        if box.id not in led_to:
            yield from branch(box, "  ")


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
