"""Draw a graph as a self-contained SVG picture, for light and dark pages.

Text is monospaced, so the width of a box follows from its longest line in any font.  A picture
loads no fonts and no scripts, and refers to no markers by id, so a page can have two pictures.
"""

import unicodedata
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from ikebana.processor.explain.explanation import Explanation
from ikebana.processor.explain.graph import Box, Graph
from ikebana.processor.explain.layout import BoxPlace, Layout, Size, layout

# Estimate the width of monospaced text without its font, by the number of characters.
#
# The usual monospaced fonts advance by 0.55 to 0.602 of their size.  Characters that they lack
# come from other fonts, for which the greatest width is assumed.

FONT = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
_NARROW = 0.61
_FOREIGN = 1.1
_EMOJI = 1.4
# Latin, Greek and Cyrillic, which these fonts have; then punctuation and arrows.
_BLOCKS = (range(0x590), range(0x2010, 0x2028), range(0x2190, 0x2194))
_EMOJI_FROM = 0x1F000
_HANGING = 2


def width(text: str) -> float:
    """Compute the greatest width of a text, in units of the font size."""
    return sum(map(_advance, text))


def wrapped(text: str, most: float) -> Iterator[str]:
    """Break a text into lines of a limited width, at spaces if there are any.

    Further lines are indented a little more than the first.
    """
    indent = " " * (len(text) - len(text.lstrip(" ")))
    if width(indent) > most / 2:
        indent = ""
        text = text.lstrip(" ")
    line, broken = "", False
    for character in text:
        # The text that moves to the next line may leave no more room than before.
        while line.strip() and width(line + character) > most:
            head, space, tail = line.rpartition(" ")
            if character == " " or not space or not head.strip():
                head, tail = line, ""
            yield head.rstrip(" ")
            line, broken = indent + " " * _HANGING + tail.lstrip(" "), True
        if character != " " or line.strip() or not broken:
            line += character
    if line.strip() or not broken:
        yield line.rstrip(" ")


def _advance(character: str) -> float:
    number = ord(character)
    if any(number in block for block in _BLOCKS):
        return _NARROW
    if unicodedata.combining(character):
        return 0.0
    return _EMOJI if number >= _EMOJI_FROM else _FOREIGN


MARGIN = 20.0
PADDING = 12.0
_HEAD = 8.0
# The font size of each class of lines, and the distance to the previous line.
LINES = {"kind": (10.0, 15.0), "title": (14.0, 19.0), "line": (11.5, 16.0), "figure": (11.5, 16.0)}
# The room for a figure, in the width of characters.
_FIGURE = 32.0
# The greatest width of a line in pixels; longer lines are broken.
_MOST = 330.0

_LIGHT = {
    "ground": "#ffffff",
    "text": "#1b1f24",
    "faint": "#57606a",
    "arrow": "#6e7781",
    "topic": "#e8eef7 #4a6fa5",
    "input": "#e8eef7 #4a6fa5",
    "operator": "#f3f3f3 #767676",
    "decoding": "#fdf3dc #a87b12",
    "state": "#f3e6f7 #8a4fa3",
    "pass": "#e3f3e6 #3f8a50",
    "arrangement": "#efe6fb #6a52b3",
    "path": "#e4f1ee #35806c",
    "join": "#fdeedd #b3692a",
    "hold": "#fbe6e3 #b0523f",
    "exchange": "#f0eee6 #7d7440",
    "output": "#dff2f3 #2f8086",
    "sink": "#f7e6ee #a04a74",
}
_DARK = {
    "ground": "#0d1117",
    "text": "#e6edf3",
    "faint": "#9aa5b1",
    "arrow": "#8b949e",
    "topic": "#16202e #6f96cf",
    "input": "#16202e #6f96cf",
    "operator": "#1f2328 #9a9a9a",
    "decoding": "#2a2110 #d0a53a",
    "state": "#26172c #b983d0",
    "pass": "#13261a #63b877",
    "arrangement": "#1f1a33 #a291e0",
    "path": "#12261f #5cb89d",
    "join": "#2d1f12 #dc9a58",
    "hold": "#301a15 #dd8570",
    "exchange": "#232015 #c2b56b",
    "output": "#10282a #55b4ba",
    "sink": "#2e1622 #d987b0",
}


class Line(NamedTuple):
    """A line of text in a box."""

    kind: str
    text: str


class Picture(NamedTuple):
    """An SVG element and its width."""

    width: int
    xml: str


def svg(explanation: Explanation) -> str:
    """Draw the plan as it is run."""
    title = f"{explanation.name}, {explanation.run.title}"
    return drawing(explanation.run, title).xml + "\n"


def drawing(graph: Graph, title: str, *, styled: bool = True) -> Picture:
    """Draw a graph; `styled` is false if the page has the `stylesheet`."""
    box_layout = layout(graph, {box.id: size_of(box) for box in graph.boxes})
    wide, high = (round(side + 2 * MARGIN) for side in (box_layout.width, box_layout.height))
    return Picture(wide, "\n".join(_parts(graph, title, box_layout, wide, high, styled=styled)))


def stylesheet() -> str:
    """Return the style of a picture in a page that chooses `color-scheme` itself."""
    return _style(_colours({kind: _either(_LIGHT[kind], _DARK[kind]) for kind in _LIGHT}))


def lines_in(box: Box) -> list[Line]:
    """Return the lines of text in a box."""
    lines = [Line("kind", box.kind)]
    for kind, text in (("title", box.title), *(("line", line) for line in box.lines)):
        size, _ = LINES[kind]
        lines += [Line(kind, part) for part in wrapped(text, _MOST / size)]
    return lines + [Line("figure", name) for name in box.figures]


def size_of(box: Box) -> Size:
    """Compute the size that the text in a box needs."""
    lines = lines_in(box)
    widest = max(
        LINES[kind][0] * (width("0") * _FIGURE if kind == "figure" else width(text))
        for kind, text in lines
    )
    height = sum(LINES[kind][1] for kind, _ in lines)
    return Size(round(widest + 2 * PADDING, 1), height + 2 * _HEAD)


def _parts(
    graph: Graph, title: str, box_layout: Layout, wide: int, high: int, *, styled: bool
) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" '
        f'viewBox="0 0 {wide} {high}" role="img" class="ikebana-plan">'
    )
    yield f"<title>{escape(title)}</title>"
    if styled:
        dark = f"@media (prefers-color-scheme: dark) {{ {_colours(_DARK)} }}"
        yield f"<style>{_style(_colours(_LIGHT) + dark)}</style>"
    yield f'<rect class="ground" width="{wide}" height="{high}" />'
    yield f'<g transform="translate({MARGIN:g} {MARGIN:g})">'
    for route in box_layout.routes:
        yield f'<path class="arrow" d="{_curve(route)}" />'
        x, y = route[-1]
        yield f'<path class="head" d="M{x:.1f},{y:.1f} l-8,-4 v8 z" />'
    for box in graph.boxes:
        yield from _box(box, box_layout.places[box.id])
    yield "</g>"
    yield "</svg>"


def _box(box: Box, place: BoxPlace) -> Iterator[str]:
    yield f'<g class="{box.kind}" data-box="{escape(box.id)}">'
    yield (
        f'<rect x="{place.left:.1f}" y="{place.top:.1f}" width="{place.width:.1f}" '
        f'height="{place.height:.1f}" rx="6" />'
    )
    y = place.top + _HEAD
    for kind, text in lines_in(box):
        y += LINES[kind][1]
        # The page that asks for a figure writes it.
        named, shown = (f' data-figure="{escape(text)}"', "") if kind == "figure" else ("", text)
        yield (
            f'<text class="{kind}"{named} xml:space="preserve" x="{place.left + PADDING:.1f}" '
            f'y="{y - 4:.1f}">{escape(shown)}</text>'
        )
    yield "</g>"


def _curve(route: list[tuple[float, float]]) -> str:
    (x, y), *rest = route
    # The line ends within the head of the arrow, or it would be visible at the tip.
    end, last = rest[-1]
    rest[-1] = (end - 6, last)
    commands = [f"M{x:.1f},{y:.1f}"]
    for at, (to, down) in enumerate(rest):
        if at % 2:
            commands.append(f"L{to:.1f},{down:.1f}")
        else:
            half = (to - x) / 2
            commands.append(
                f"C{x + half:.1f},{y:.1f} {to - half:.1f},{down:.1f} {to:.1f},{down:.1f}"
            )
        x, y = to, down
    return " ".join(commands)


def _style(colours: str) -> str:
    sizes = "".join(
        f".ikebana-plan .{kind} {{ font-size: {size}px }}" for kind, (size, _) in LINES.items()
    )
    return (
        f".ikebana-plan text {{ font-family: {FONT}; white-space: pre }}"
        f"{sizes}"
        ".ikebana-plan .title { font-weight: bold }"
        ".ikebana-plan .arrow { fill: none; stroke-width: 1.4 }"
        ".ikebana-plan .figure { font-weight: bold }"
        f"{colours}"
    )


def _either(light: str, dark: str) -> str:
    """Join the colours of a kind, such as its fill and its stroke, in pairs."""
    pairs = zip(light.split(), dark.split(), strict=True)
    return " ".join(f"light-dark({one},{other})" for one, other in pairs)


def _colours(palette: dict[str, str]) -> str:
    rules = [
        f".ikebana-plan .ground {{ fill: {palette['ground']} }}",
        f".ikebana-plan text {{ fill: {palette['text']} }}",
        f".ikebana-plan text.kind {{ fill: {palette['faint']} }}",
        f".ikebana-plan .arrow {{ stroke: {palette['arrow']} }}",
        f".ikebana-plan .head {{ fill: {palette['arrow']} }}",
    ]
    for kind, colours in palette.items():
        if " " in colours:
            fill, stroke = colours.split()
            rules.append(f".ikebana-plan .{kind} rect {{ fill: {fill}; stroke: {stroke} }}")
    return "".join(rules)
