"""Render an explanation as a Mermaid flowchart, in the form that GitHub renders.

Ids are generated, so texts of the user occur only in quoted labels.  There, all characters that
could end a label, or are special in Mermaid, in the Markdown that it reads in labels, or in HTML,
are written as Mermaid's own entities, such as `#60;` for `<`.
"""

from collections.abc import Iterator

from ikebana.processor.explain.explanation import Explanation
from ikebana.processor.explain.graph import Graph

# Characters without escapes; a full stop or a hyphen before a space could begin a list.
_PLAIN = frozenset(" ,/=()'")
_WITHIN = frozenset(".-_")
# Boxes of other shapes have slanting sides that grow with every line.
_SHAPES = {
    "topic": ("([", "])"),
    "state": ("[(", ")]"),
    "arrangement": ("[(", ")]"),
    "hold": ("(", ")"),
    "exchange": ("(", ")"),
}
_BOX = ("[", "]")
# Readable on light and dark pages, because each colour has its own background.
_COLOURS = {
    "topic": "fill:#e8eef7,stroke:#4a6fa5,color:#16202e",
    "input": "fill:#e8eef7,stroke:#4a6fa5,color:#16202e",
    "operator": "fill:#f3f3f3,stroke:#767676,color:#1c1c1c",
    "decoding": "fill:#fdf3dc,stroke:#a87b12,color:#2b2008",
    "state": "fill:#f3e6f7,stroke:#8a4fa3,color:#261230",
    "pass": "fill:#e3f3e6,stroke:#3f8a50,color:#10270f",
    "arrangement": "fill:#efe6fb,stroke:#6a52b3,color:#1d1436",
    "path": "fill:#e4f1ee,stroke:#35806c,color:#0d251e",
    "join": "fill:#fdeedd,stroke:#b3692a,color:#2f1a08",
    "hold": "fill:#fbe6e3,stroke:#b0523f,color:#30130d",
    "exchange": "fill:#f0eee6,stroke:#7d7440,color:#232015",
    "output": "fill:#dff2f3,stroke:#2f8086,color:#0c2628",
}


def mermaid(explanation: Explanation) -> str:
    """Render the flowchart, with a line end at its end."""
    return "\n".join(_lines(explanation)) + "\n"


def label(text: str) -> str:
    """Escape a text for a quoted label.

    >>> label('a < "b" - c.d')
    'a #60; #34;b#34; #45; c.d'
    """
    return "".join(
        character
        if character.isalnum()
        or character in _PLAIN
        or (character in _WITHIN and _inside(text, at))
        else f"#{ord(character)};"
        for at, character in enumerate(text)
    )


def _inside(text: str, at: int) -> bool:
    """Return whether a character is between letters or digits."""
    return text[max(at - 1, 0) : at].isalnum() and text[at + 1 : at + 2].isalnum()


def _lines(explanation: Explanation) -> Iterator[str]:
    yield "flowchart LR"
    kinds: dict[str, list[str]] = {}
    for mark, graph in (("w", explanation.written), ("r", explanation.run)):
        yield f'  subgraph {graph.title.replace(" ", "_")}["{graph.title}"]'
        yield "    direction LR"
        yield from (f"    {line}" for line in _graph(graph, mark, kinds))
        yield "  end"
    for kind, ids in kinds.items():
        yield f"  classDef {kind}Box {_COLOURS[kind]},text-align:left"
        yield f"  class {','.join(ids)} {kind}Box"


def _graph(graph: Graph, mark: str, kinds: dict[str, list[str]]) -> Iterator[str]:
    ids = {box.id: f"{mark}{number}" for number, box in enumerate(graph.boxes)}
    for box in graph.boxes:
        begin, end = _SHAPES.get(box.kind, _BOX)
        lines = (f"{box.kind} {box.title}", *box.lines)
        yield f'{ids[box.id]}{begin}"{"<br/>".join(map(label, lines))}"{end}'
        kinds.setdefault(box.kind, []).append(ids[box.id])
    for arrow in graph.arrows:
        yield f"{ids[arrow.origin]} --> {ids[arrow.target]}"
