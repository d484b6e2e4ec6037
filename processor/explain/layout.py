"""Lay out the boxes of a graph: layers from left to right, few crossings, no overlaps.

This is Sugiyama's method, for some dozens of boxes.  The layer of a box is the length of the
longest way to it.  An arrow over several layers gets a lane in each of them.  The order in a
layer is by the mean position of the neighbours, with sweeps in both directions.  Then each box
moves as near to the centre of its neighbours as the boxes above and below it allow, which is an
isotonic regression.  Libraries were considered: networkx has no such layout, grandalf has neither
lanes nor boxes of different heights in a row of columns, and either would be a dependency in
place of these lines.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ikebana.processor.explain.graph import Graph

COLUMN_GAP = 56.0
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


def layout(graph: Graph, sizes: Mapping[str, Size]) -> Layout:
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
    lefts = [sum(widths[:at]) + COLUMN_GAP * at for at in range(count)]
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


def _ways(graph: Graph, layer_of: Mapping[str, int]) -> list[list[_Node]]:
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


def _layers(graph: Graph) -> dict[str, int]:
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
