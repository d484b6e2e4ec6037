"""Render an explanation as text for a terminal."""

import textwrap
from collections.abc import Iterator

from ikebana.processor.explain.costs import MEANINGS, Cost
from ikebana.processor.explain.explanation import Explanation
from ikebana.processor.explain.graph import Box, Graph

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
    yield from (f"  {word}: {meaning}" for word, meaning in MEANINGS.items())
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


def _table(costs: tuple[Cost, ...]) -> Iterator[str]:
    width = max(len(cost.part) for cost in costs)
    yield f"  {'':{width}}  arrangements  exchanges  passes"
    for part, arrangements, exchanges, passes in costs:
        yield f"  {part:{width}}  {arrangements:12}  {exchanges:9}  {passes:6}"
