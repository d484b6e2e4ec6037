"""Draw the graphs of an explanation: as SVG pictures, and as a Mermaid flowchart.

An SVG picture is self-contained, for light and dark pages.  Its text is monospaced, so the width
of a box follows from its longest line in any font.  It loads no fonts and no scripts, and has no
markers with ids, so a page can have two pictures.

Its layout has layers from left to right, few crossings, and no overlaps.  This is Sugiyama's
method, for some dozens of boxes.  The layer of a box is the length of the longest way to it.  An
arrow over several layers gets a lane in each of them.  The order in a layer is by the mean
position of the neighbours, with sweeps in both directions.  Then each box moves as near to the
centre of its neighbours as the boxes above and below it allow, which is an isotonic regression.
Libraries were considered: networkx has no such layout, grandalf has neither lanes nor boxes of
different heights in a row of columns, and either would be a dependency in place of these lines.

A flowchart has the form that GitHub renders.  Its ids are generated, so texts of the user occur
only in quoted labels.  There, all characters that could end a label, or are special in Mermaid, in
the Markdown that it reads in labels, or in HTML, are written as Mermaid's own entities, such as
`#60;` for `<`.
"""

import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from ikebana.processor.explain.explanation import Explanation
from ikebana.processor.explain.graph import Box, Diagram

_COLUMN_GAP = 56.0
ROW_GAP = 22.0
_LANE = 6.0
_SWEEPS = 8


class Size(NamedTuple):
    """The size of a box."""

    width: float
    height: float


class BoxPlace(NamedTuple):
    """The rectangle of a box."""

    left: float
    top: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """The height of the box's middle."""
        return self.top + self.height / 2


class Layout(NamedTuple):
    """The places of boxes by id, and the points of each arrow's route."""

    places: dict[str, BoxPlace]
    routes: list[list[tuple[float, float]]]
    width: float
    height: float


# A box by its id, or a lane: the number of the arrow, and the layer.
_Node = str | tuple[int, int]


def layout(graph: Diagram, sizes: Mapping[str, Size]) -> Layout:
    """Place boxes of these sizes; outputs are in the last layer."""
    layer_of = _layers(graph)
    joined = {end for arrow in graph.arrows for end in arrow}
    count = max(layer_of.values(), default=-1) + 1
    layers: list[list[_Node]] = [[] for _ in range(count)]
    for box in graph.boxes:
        if box.id in joined:
            layers[layer_of[box.id]].append(box.id)
    ways = _ways(graph, layer_of)
    before: dict[_Node, list[_Node]] = {}
    after: dict[_Node, list[_Node]] = {}
    for way in ways:
        for lane in way[1:-1]:
            assert not isinstance(lane, str), "an arrow passes a box"
            layers[lane[1]].append(lane)
        for one, other in itertools.pairwise(way):
            after.setdefault(one, []).append(other)
            before.setdefault(other, []).append(one)
    _order(layers, before, after)
    heights = {node: _height(node, sizes) for layer in layers for node in layer}
    middles = _middles(layers, heights, before, after)
    # A box without arrows goes below the other boxes of its layer.
    for box in graph.boxes:
        if box.id not in joined:
            heights[box.id] = sizes[box.id].height
            layer = layers[layer_of[box.id]]
            below = [middles[node] + heights[node] / 2 + ROW_GAP for node in layer]
            middles[box.id] = max(below, default=0.0) + heights[box.id] / 2
            layer.append(box.id)
    widths = [max((_width(node, sizes) for node in layer), default=0.0) for layer in layers]
    lefts = [sum(widths[:at]) + _COLUMN_GAP * at for at in range(count)]
    columns = list(zip(lefts, widths, strict=True))
    top = min((middles[node] - heights[node] / 2 for node in middles), default=0.0)
    places = {
        box.id: BoxPlace(
            lefts[layer_of[box.id]],
            middles[box.id] - heights[box.id] / 2 - top,
            sizes[box.id].width,
            sizes[box.id].height,
        )
        for box in graph.boxes
    }
    return Layout(
        places,
        [_route(way, middles, top, places, columns) for way in ways],
        max((place.left + place.width for place in places.values()), default=0.0),
        max((middles[node] + heights[node] / 2 - top for node in middles), default=0.0),
    )


def _ways(graph: Diagram, layer_of: Mapping[str, int]) -> list[list[_Node]]:
    """The nodes that each arrow passes: its origin, a lane in each layer between, its target."""
    ways: list[list[_Node]] = []
    for number, arrow in enumerate(graph.arrows):
        lanes = range(layer_of[arrow.origin] + 1, layer_of[arrow.target])
        ways.append([arrow.origin, *((number, layer) for layer in lanes), arrow.target])
    return ways


def _route(
    way: Sequence[_Node],
    middles: Mapping[_Node, float],
    top: float,
    places: Mapping[str, BoxPlace],
    columns: Sequence[tuple[float, float]],
) -> list[tuple[float, float]]:
    """The points of an arrow, from the right of its origin to the left of its target.

    `columns` has the left and the width of each layer.
    """
    points: list[tuple[float, float]] = []
    for at, node in enumerate(way):
        y = middles[node] - top
        if isinstance(node, str):
            place = places[node]
            points.append((place.left + place.width if at == 0 else place.left, y))
        else:
            left, width = columns[node[1]]
            points += [(left, y), (left + width, y)]
    return points


def _layers(graph: Diagram) -> dict[str, int]:
    layer_of = {box.id: 0 for box in graph.boxes}
    for box in graph.boxes:
        for arrow in graph.arrows:
            if arrow.origin == box.id:
                layer_of[arrow.target] = max(layer_of[arrow.target], layer_of[box.id] + 1)
    last = max(layer_of.values(), default=0)
    return {box.id: last if box.kind == "output" else layer_of[box.id] for box in graph.boxes}


def _order(
    layers: list[list[_Node]],
    before: Mapping[_Node, list[_Node]],
    after: Mapping[_Node, list[_Node]],
) -> None:
    """Sort each layer by the mean position of the neighbours in the layer sorted before."""
    best, fewest = [list(layer) for layer in layers], _crossings(layers, after)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = before if down else after
        for layer in layers if down else reversed(layers):
            rank = {node: at for other in layers for at, node in enumerate(other)}
            positions = {
                node: _mean((rank[n] for n in neighbours.get(node, ())), float(rank[node]))
                for node in layer
            }
            layer.sort(key=positions.__getitem__)
        if (crossings := _crossings(layers, after)) < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    layers[:] = best


def _crossings(layers: Sequence[Sequence[_Node]], after: Mapping[_Node, list[_Node]]) -> int:
    rank = {node: at for layer in layers for at, node in enumerate(layer)}
    count = 0
    for layer in layers:
        edges = [(rank[node], rank[target]) for node in layer for target in after.get(node, ())]
        count += sum(
            (a - c) * (b - d) < 0 for at, (a, b) in enumerate(edges) for c, d in edges[:at]
        )
    return count


def _middles(
    layers: Sequence[Sequence[_Node]],
    heights: Mapping[_Node, float],
    before: Mapping[_Node, list[_Node]],
    after: Mapping[_Node, list[_Node]],
) -> dict[_Node, float]:
    """Compute the vertical position of each node's middle."""
    middles: dict[_Node, float] = {}
    for layer in layers:
        y = 0.0
        for node in layer:
            middles[node] = y + heights[node] / 2
            y += heights[node] + ROW_GAP
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = before if down else after
        for layer in layers if down else reversed(layers):
            targets = [
                _mean((middles[n] for n in neighbours.get(x, ())), middles[x]) for x in layer
            ]
            apart = [
                (heights[one] + heights[other]) / 2 + ROW_GAP
                for one, other in itertools.pairwise(layer)
            ]
            middles |= zip(layer, _spread(targets, apart), strict=True)
    return middles


def _spread(targets: Sequence[float], apart: Sequence[float]) -> list[float]:
    """Find the numbers nearest to `wanted`, by least squares, with distances `apart` or more.

    After subtraction of the distances the numbers must not decrease: neighbours that would
    decrease are pooled.
    """
    sums, total = [0.0], 0.0
    for distance in apart:
        total += distance
        sums.append(total)
    pools: list[tuple[float, int]] = []
    for number, offset in zip(targets, sums, strict=False):
        mean, size = number - offset, 1
        while pools and pools[-1][0] > mean:
            other, count = pools.pop()
            mean = (mean * size + other * count) / (size + count)
            size += count
        pools.append((mean, size))
    flat = [mean for mean, size in pools for _ in range(size)]
    return [mean + offset for mean, offset in zip(flat, sums, strict=False)]


def _mean(numbers: Iterable[float], otherwise: float) -> float:
    values = list(numbers)
    return sum(values) / len(values) if values else otherwise


def _height(node: _Node, sizes: Mapping[str, Size]) -> float:
    return sizes[node].height if isinstance(node, str) else _LANE


def _width(node: _Node, sizes: Mapping[str, Size]) -> float:
    return sizes[node].width if isinstance(node, str) else 0.0


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


class BoxLine(NamedTuple):
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


def drawing(graph: Diagram, title: str, *, styled: bool = True) -> Picture:
    """Draw a graph; `styled` is false if the page has the `stylesheet`."""
    box_layout = layout(graph, {box.id: size_of(box) for box in graph.boxes})
    wide, high = (round(side + 2 * MARGIN) for side in (box_layout.width, box_layout.height))
    return Picture(wide, "\n".join(_parts(graph, title, box_layout, wide, high, styled=styled)))


def stylesheet() -> str:
    """Return the style of a picture in a page that chooses `color-scheme` itself."""
    return _style(_colours({kind: _either(_LIGHT[kind], _DARK[kind]) for kind in _LIGHT}))


def lines_in(box: Box) -> list[BoxLine]:
    """Return the lines of text in a box."""
    lines = [BoxLine("kind", box.kind)]
    for kind, text in (("title", box.title), *(("line", line) for line in box.lines)):
        size, _ = LINES[kind]
        lines += [BoxLine(kind, part) for part in wrapped(text, _MOST / size)]
    return lines + [BoxLine("figure", name) for name in box.figures]


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
    graph: Diagram, title: str, box_layout: Layout, wide: int, high: int, *, styled: bool
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


# Characters without escapes; a full stop or a hyphen before a space could begin a list.
_IN_LABELS = frozenset(" ,/=()'")
_WITHIN_LABELS = frozenset(".-_")
# Boxes of other shapes have slanting sides that grow with every line.
_SHAPES = {
    "topic": ("([", "])"),
    "state": ("[(", ")]"),
    "arrangement": ("[(", ")]"),
    "hold": ("(", ")"),
    "exchange": ("(", ")"),
}
_BOX = ("[", "]")
# Of text on the light colours of boxes: readable on light and dark pages.
_TEXT_COLOURS = {
    "topic": "#16202e",
    "input": "#16202e",
    "operator": "#1c1c1c",
    "decoding": "#2b2008",
    "state": "#261230",
    "pass": "#10270f",
    "arrangement": "#1d1436",
    "path": "#0d251e",
    "join": "#2f1a08",
    "hold": "#30130d",
    "exchange": "#232015",
    "output": "#0c2628",
}


def mermaid(explanation: Explanation) -> str:
    """Render the flowchart, with a line end at its end."""
    return "\n".join(_mermaid_lines(explanation)) + "\n"


def label(text: str) -> str:
    """Escape a text for a quoted label.

    >>> label('a < "b" - c.d')
    'a #60; #34;b#34; #45; c.d'
    """
    return "".join(
        character
        if character.isalnum()
        or character in _IN_LABELS
        or (character in _WITHIN_LABELS and _inside(text, at))
        else f"#{ord(character)};"
        for at, character in enumerate(text)
    )


def _inside(text: str, at: int) -> bool:
    """Return whether a character is between letters or digits."""
    return text[max(at - 1, 0) : at].isalnum() and text[at + 1 : at + 2].isalnum()


def _mermaid_lines(explanation: Explanation) -> Iterator[str]:
    yield "flowchart LR"
    kinds: dict[str, list[str]] = {}
    for mark, graph in (("w", explanation.written), ("r", explanation.run)):
        yield f'  subgraph {graph.title.replace(" ", "_")}["{graph.title}"]'
        yield "    direction LR"
        yield from (f"    {line}" for line in _graph(graph, mark, kinds))
        yield "  end"
    for kind, ids in kinds.items():
        fill, stroke = _LIGHT[kind].split()
        colours = f"fill:{fill},stroke:{stroke},color:{_TEXT_COLOURS[kind]}"
        yield f"  classDef {kind}Box {colours},text-align:left"
        yield f"  class {','.join(ids)} {kind}Box"


def _graph(graph: Diagram, mark: str, kinds: dict[str, list[str]]) -> Iterator[str]:
    ids = {box.id: f"{mark}{number}" for number, box in enumerate(graph.boxes)}
    for box in graph.boxes:
        begin, end = _SHAPES.get(box.kind, _BOX)
        lines = (f"{box.kind} {box.title}", *box.lines)
        yield f'{ids[box.id]}{begin}"{"<br/>".join(map(label, lines))}"{end}'
        kinds.setdefault(box.kind, []).append(ids[box.id])
    for arrow in graph.arrows:
        yield f"{ids[arrow.origin]} --> {ids[arrow.target]}"
