"""Render a plan's explanation, or the description of an edit, as text for a terminal.

An edit has a sign and a word for each part, aligned: `+` is new, `-` is removed, `~` is changed,
`=` stays, `!` is refused.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from ikebana.processor.base.texts import counted, moment, printable
from ikebana.processor.checkpoint.edit_description import (
    Does,
    EditDescription,
    EditedKind,
    FillSource,
    PartChange,
)
from ikebana.processor.explain import estimates
from ikebana.processor.explain.estimates import Work
from ikebana.processor.explain.explanation import ALL, MEANINGS, Cost, Explanation
from ikebana.processor.explain.graph import Box, Diagram
from ikebana.processor.explain.words import figure, listed

_WIDTH = 96
_WARNINGS = "what could cost less"


def text(explanation: Explanation) -> str:
    """Render the explanation, with a line end at its end."""
    return "\n".join(_text_lines(explanation)) + "\n"


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


def _text_lines(explanation: Explanation) -> Iterator[str]:
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


def _tree(graph: Diagram) -> Iterator[str]:
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


def _wrapped(text: str, first: str = "  ", rest: str = "    ") -> list[str]:
    return textwrap.wrap(
        printable(text),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
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


Tone = Literal["plain", "heading", "new", "replaced", "dropped", "stays", "refused"]
_SIGNS: dict[Does, tuple[str, Tone]] = {
    "stays": ("=", "stays"),
    "renamed": ("=", "stays"),
    "new": ("+", "new"),
    "replaced": ("~", "replaced"),
    "dropped": ("-", "dropped"),
    "refused": ("!", "refused"),
}
_SECTIONS: dict[EditedKind, str] = {
    "input": "inputs",
    "operator": "operators",
    "arrangement": "arrangements of joins",
    "output": "outputs",
}
_UNITS = ("KiB", "MiB", "GiB", "TiB")


class Line(NamedTuple):
    """A line and its tone, for output with colours."""

    text: str
    tone: Tone = "plain"


def edit_lines(description: EditDescription) -> Iterator[Line]:
    """Describe the edit by sections; the last lines count the parts by their fates."""
    where = f"pipeline {description.pipeline}, checkpoint {printable(description.checkpoint)}"
    if description.frontier is not None:
        where += f", frontier {moment(description.frontier)}"
    yield Line(where, "heading")
    for kind, title in _SECTIONS.items():
        parts = [part for part in description.parts if part.kind == kind]
        if parts:
            yield Line("")
            yield Line(title, "heading")
            yield from _rows(parts)
    yield from _refusals(description)
    if first := description.before_that():
        yield Line("")
        yield Line("before that", "heading")
        yield from (Line(text) for words in first for text in _wrapped(words, "  ", "  "))
    yield from _state(description)
    yield Line("")
    yield Line(closing(description), "heading")


def closing(description: EditDescription) -> str:
    """Summarise the result in a line."""
    if description.refused:
        return f"refused, for {counted(len(description.refused), 'reason')}"
    if description.is_new:
        return f"there is no checkpoint yet, all is new: {description.summary()}"
    if not description.edited:
        return "nothing else changes" if description.rescaled is not None else "nothing changes"
    return description.summary()


def _rows(parts: Sequence[PartChange]) -> Iterator[Line]:
    names = max(len(_name(part)) for part in parts)
    types = max(len(part.type) for part in parts)
    for part in parts:
        sign, tone = _SIGNS[part.does]
        row = f"  {sign} {_name(part):{names}}  "
        if types:
            row += f"{part.type:{types}}  "
        yield from (
            Line(text, tone)
            for text in textwrap.wrap(
                printable(_effect(part)),
                max(_WIDTH, len(row) + _WIDTH // 3),
                initial_indent=row,
                subsequent_indent=" " * len(row),
                break_long_words=False,
                break_on_hyphens=False,
            )
        )


def _name(part: PartChange) -> str:
    return printable(part.name)


def _effect(part: PartChange) -> str:
    """Describe the effect of the edit on a part."""
    words = [_word(part)]
    if part.was is not None and part.does != "renamed":
        words.append(f"called {part.was} in the checkpoint")
    if part.why:
        words.append(part.why)
    if part.filled_from and part.kind != "input":
        verb = "made of" if part.shows != "nothing" else "filled from"
        words.append(f"{verb} {listed(map(_origin, part.filled_from))}")
    if part.bytes and part.does in ("dropped", "stays"):
        words.append(_size(part.bytes))
    return ", ".join(words)


def _word(part: PartChange) -> str:
    if part.kind == "output":
        return {
            "everything": f'new, topic "{part.topic}" begins with all that there is',
            "difference": f'replaced, topic "{part.topic}" gets the difference',
            "end": f'dropped, topic "{part.topic}" ends',
            "nothing": "as before" if part.does == "stays" else _plain(part),
        }[part.shows]
    return _plain(part)


def _plain(part: PartChange) -> str:
    if part.does == "stays":
        return "as before"
    return f"renamed, was {part.was}" if part.does == "renamed" else part.does


def _origin(origin: FillSource) -> str:
    words = {
        "state": f"the state of {origin.name}",
        "arrangement": f"arrangement {origin.name}",
        "topic": f'topic "{origin.name}"',
        "operator": f"the new operator {origin.name}",
        "join": f"the results of {origin.name}, computed once more",
        "own": "what its own topic has, read once more",
    }[origin.kind]
    return words if origin.rows is None else f"{words} ({counted(origin.rows, 'row')})"


def _refusals(description: EditDescription) -> Iterator[Line]:
    if description.refused:
        yield Line("")
        yield Line("refused", "heading")
    for each in description.refused:
        at = each.path if each.line is None else f"{each.path} (line {each.line})"
        whole = f"{at} {each.reason}".lstrip()
        yield from (Line(text, "refused") for text in _wrapped(whole, "  ! ", "    "))
        yield from (Line(text) for text in _wrapped(each.remedy, "      ", "      "))


def _state(description: EditDescription) -> Iterator[Line]:
    state = description.state
    if state is None or description.result != "changes":
        return
    yield Line("")
    yield Line("state", "heading")
    if state.rows_to_read is None:
        text = (
            f"its files have {_size(state.files_bytes)}: no more than that is read; what is read "
            "of them and what stays was not counted"
        )
    else:
        text = (
            f"{counted(state.rows_to_read, 'row')} to read, "
            f"{_size(state.kept_bytes or 0)} to keep, {_size(state.released_bytes or 0)} to "
            "release; what new parts will keep is known when they are filled"
        )
    yield from (Line(text) for text in _wrapped(text, "  ", "  "))


def _size(size: int) -> str:
    """Write a number of bytes with a unit.

    >>> _size(999), _size(1536), _size(5 * 2**30)
    ('999 bytes', '1.5 KiB', '5.0 GiB')
    """
    if size < 1024:
        return counted(size, "byte")
    power = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / 1024**power:,.1f} {_UNITS[power - 1]}"
