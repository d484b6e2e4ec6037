"""Draw the pictures of the documentation as SVG, in light and dark.

    python docs/pictures.py            # write docs/images/*.svg
    python docs/pictures.py FOLDER     # write them elsewhere

A picture follows the colours that a reader's system prefers.  A test compares the stored files
with what this draws.
"""

import sys
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from ikebana.processor.base.transition import NEXT, Phase

HERE = Path(__file__).resolve().parent / "images"
_STYLE = """\
text { font: 14px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
.code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 13px; }
.head { font-weight: 600; }
.soft { fill: #59636e; font-size: 12.5px; }
.plus { fill: #1a7f37; font-weight: 600; } .minus { fill: #cf222e; font-weight: 600; }
rect { fill: #ffffff; stroke: #8c959f; rx: 6; }
.plain { stroke: none; fill: none; }
.accent { fill: #ddf4ff; stroke: #0969da; } .warm { fill: #fff8c5; stroke: #9a6700; }
.closed { fill: #dafbe1; stroke: none; rx: 0; }
path { fill: none; stroke: #59636e; stroke-width: 1.5; }
.strong { stroke: #0969da; stroke-width: 2.5; }
.dash { stroke-dasharray: 5 4; } marker path { fill: #59636e; stroke: none; }
circle { fill: #0969da; } .gone { fill: #cf222e; } .came { fill: #1a7f37; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .soft { fill: #9198a1; }
.plus { fill: #3fb950; } .minus { fill: #f85149; }
rect { fill: #151b23; stroke: #656c76; } .plain { fill: none; }
.accent { fill: #0c2d6b; stroke: #4493f8; } .warm { fill: #3b2300; stroke: #d29922; }
.closed { fill: #04260f; }
path { stroke: #9198a1; } .strong { stroke: #4493f8; } marker path { fill: #9198a1; }
circle { fill: #4493f8; } .gone { fill: #f85149; } .came { fill: #3fb950; }
}"""


class Picture:
    """A drawing of rectangles, arrows and texts; all lengths are in pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def box(
        self, x: float, y: float, w: float, h: float, lines: str | Sequence[str], kind: str = ""
    ) -> None:
        """A rectangle with centred lines of text; the first line is its head if there are more."""
        texts = [lines] if isinstance(lines, str) else [*lines]
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{h}"/>')
        top = y + h / 2 - 9 * (len(texts) - 1) + 5
        for number, line in enumerate(texts):
            style = "" if len(texts) == 1 else "head" if number == 0 else "soft"
            self.text(x + w / 2, top + 18 * number, line, style, "middle")

    def text(self, x: float, y: float, line: str, kind: str = "", anchor: str = "start") -> None:
        """A line of text whose baseline is at `y`."""
        self._parts.append(
            f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(line)}</text>'
        )

    def arrow(
        self, points: Sequence[tuple[float, float]], kind: str = "", label: str = ""
    ) -> None:
        """A line through the points with a head at its end, and a label above its middle."""
        way = " L".join(f"{x} {y}" for x, y in points)
        self._parts.append(f'<path class="{kind}" d="M{way}" marker-end="url(#head)"/>')
        if label:
            (x0, y0), (x1, y1) = points[0], points[1]
            self.text((x0 + x1) / 2, (y0 + y1) / 2 - 7, label, "soft", "middle")

    def line(self, points: Sequence[tuple[float, float]], kind: str = "") -> None:
        """A line through the points."""
        way = " L".join(f"{x} {y}" for x, y in points)
        self._parts.append(f'<path class="{kind}" d="M{way}"/>')

    def dot(self, x: float, y: float, kind: str = "") -> None:
        """A small filled circle."""
        self._parts.append(f'<circle class="{kind}" cx="{x}" cy="{y}" r="6"/>')

    def area(self, x: float, y: float, w: float, h: float, kind: str) -> None:
        """A rectangle without text."""
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{h}"/>')

    def svg(self) -> str:
        """The picture as the text of an SVG file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img">'
        )
        arrow = (
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0 L10 5 L0 10 z"/></marker></defs>'
        )
        parts = [head, f"<title>{escape(self.title)}</title>", f"<style>\n{_STYLE}\n</style>"]
        return "\n".join([*parts, arrow, *self._parts, "</svg>"]) + "\n"


def upserts() -> Picture:
    """Three messages of a key, and the updates that follow from them."""
    picture = Picture(760, 250, "Upserts become updates with a time and a diff")
    picture.text(20, 28, "topic flights: upserts", "head")
    picture.text(430, 28, "updates (data, time, diff)", "head")
    messages = [("N1 is at JFK", 0), ("N1 is at MIA", 1), ("N1 has no place", 2)]
    updates = [[("JFK", 0, 1)], [("JFK", 1, -1), ("MIA", 1, 1)], [("MIA", 2, -1)]]
    top = 45.0
    for (message, _), rows in zip(messages, updates, strict=True):
        height = 26.0 * len(rows) + 14
        picture.box(20, top, 190, height, message)
        picture.arrow([(210, top + height / 2), (290, top + height / 2)])
        picture.box(290, top, 60, height, "state", "accent")
        picture.arrow([(350, top + height / 2), (430, top + height / 2)])
        picture.box(430, top, 300, height, "")
        for number, (place, time, diff) in enumerate(rows):
            y = top + 25 + 26 * number
            picture.text(445, y, f"(N1, {place})", "code")
            picture.text(560, y, f"at time {time}", "code")
            picture.text(660, y, f"{diff:+d}", "code plus" if diff > 0 else "code minus")
        top += height + 12
    return picture


def frontier() -> Picture:
    """Updates on an axis of time, the intervals of two batches, and the frontier."""
    picture = Picture(760, 215, "A frontier says which times are complete")
    picture.area(60, 45, 400, 100, "closed")
    picture.text(70, 38, "closed: no update of these times will come", "soft")
    picture.text(475, 38, "open: more may come", "soft")
    picture.arrow([(40, 145), (730, 145)])
    picture.text(715, 165, "time", "soft", "end")
    for x, y, kind in (
        (100, 120, "came"),
        (160, 90, "came"),
        (160, 120, "gone"),
        (250, 120, "came"),
        (330, 90, "gone"),
        (330, 120, "came"),
        (420, 120, "came"),
        (520, 120, "came"),
        (590, 120, "came"),
    ):
        picture.dot(x, y, kind)
    picture.line([(260, 45), (260, 145)], "dash")
    picture.line([(460, 40), (460, 150)], "strong")
    for x, label in ((60, "lower"), (260, "upper of batch 1"), (460, "frontier after batch 2")):
        picture.text(x, 165, label, "code", "middle" if x > 100 else "start")
    picture.text(160, 190, "interval of batch 1", "soft", "middle")
    picture.text(360, 190, "interval of batch 2", "soft", "middle")
    picture.dot(560, 68, "came")
    picture.text(575, 73, "+1: a row comes", "soft")
    picture.dot(560, 90, "gone")
    picture.text(575, 95, "-1: a row leaves", "soft")
    return picture


def exchange() -> Picture:
    """Rows that go to the shard of another key, a batch later."""
    picture = Picture(760, 260, "An exchange sends rows to the shards of another key")
    picture.text(130, 26, "batch 7", "head", "middle")
    picture.text(630, 26, "batch 8", "head", "middle")
    for number, y in enumerate((45, 155)):
        picture.box(20, y, 220, 75, [f"shard {number}", "orders, by order id"])
        picture.box(520, y, 220, 75, [f"shard {number}", "sums, by customer"])
    picture.box(
        300, 85, 160, 105, ["exchange topic", "written in the", "batch's transaction"], "warm"
    )
    picture.arrow([(240, 75), (300, 115)])
    picture.arrow([(240, 200), (300, 160)])
    picture.arrow([(460, 115), (520, 75)])
    picture.arrow([(460, 160), (520, 200)])
    picture.text(
        380, 250, "so what lies behind an exchange has a frontier of its own", "soft", "middle"
    )
    return picture


def delta_path() -> Picture:
    """The lookups that a change of one input takes through a join of three."""
    picture = Picture(760, 280, "A change takes one path of lookups, and nothing between is kept")
    rows = [
        ("a change of orders", "customers by id", "products by id"),
        ("a change of customers", "orders by customer", "products by id"),
        ("a change of products", "orders by product", "customers by id"),
    ]
    for number, (change, first, second) in enumerate(rows):
        y = 30 + 75 * number
        picture.box(20, y, 180, 46, change)
        picture.arrow([(200, y + 23), (250, y + 23)])
        picture.box(250, y, 170, 46, first, "accent")
        picture.arrow([(420, y + 23), (470, y + 23)])
        picture.box(470, y, 160, 46, second, "accent")
        picture.arrow([(630, y + 23), (680, y + 23)])
        picture.text(685, y + 28, "result")
    picture.text(
        380, 265, "blue: lookups in arrangements, as of the time of the change", "soft", "middle"
    )
    return picture


def shared() -> Picture:
    """Two joins over three arrangements, which are stored once."""
    picture = Picture(760, 250, "Joins share arrangements")
    inputs = ["orders", "customers", "products"]
    for number, name in enumerate(inputs):
        y = 25 + 72 * number
        picture.box(20, y, 120, 46, name)
        picture.arrow([(140, y + 23), (220, y + 23)], label="feed")
        picture.box(220, y, 200, 46, ["arrangement", f"{name} by id"], "accent")
    picture.box(560, 45, 180, 50, ["join revenue", "keeps no results"])
    picture.box(560, 150, 180, 50, ["join open orders", "keeps no results"])
    for y in (48, 120, 192):
        picture.arrow([(420, y), (560, 70)])
    for y in (48, 120):
        picture.arrow([(420, y), (560, 175)])
    return picture


def edit() -> Picture:
    """What is unchanged goes on while what is changed is filled beside it."""
    picture = Picture(760, 235, "An edit over time")
    for x, label in ((300, "edited file, restart"), (520, "switch: the difference")):
        picture.line([(x, 35), (x, 190)], "dash")
        picture.text(x, 210, label, "soft", "middle")
    picture.text(20, 62, "unchanged")
    picture.text(20, 92, "operators", "soft")
    picture.text(20, 142, "changed")
    picture.text(20, 172, "operators", "soft")
    picture.box(120, 50, 600, 45, "go on, with their state and their topics", "accent")
    picture.box(120, 130, 180, 45, "old plan")
    picture.box(300, 130, 220, 45, ["filled from the state", "in portions"], "warm")
    picture.box(520, 130, 200, 45, "new plan", "accent")
    picture.text(520, 228, "is written as updates", "soft", "middle")
    picture.text(20, 25, "batches from left to right", "soft")
    return picture


# The place of each phase of a transition, and by phases the way of the arrow and of its reason.
_PHASES = {
    Phase.SETTLED: (20, 175, 90),
    Phase.FILL: (220, 175, 90),
    Phase.JOIN: (330, 95, 90),
    Phase.WRITE: (450, 175, 110),
    Phase.CLOSE: (630, 175, 110),
    Phase.REBUILD: (20, 300, 90),
    Phase.REBUILT: (220, 300, 90),
}
_WAYS: dict[tuple[Phase, Phase], tuple[list[tuple[float, float]], tuple[float, float]]] = {
    (Phase.SETTLED, Phase.FILL): ([(110, 188), (220, 188)], (165, 182)),
    (Phase.FILL, Phase.SETTLED): ([(220, 208), (110, 208)], (165, 222)),
    (Phase.FILL, Phase.JOIN): ([(290, 175), (335, 141)], (275, 155)),
    (Phase.FILL, Phase.WRITE): ([(310, 198), (450, 198)], (380, 192)),
    (Phase.FILL, Phase.CLOSE): ([(250, 221), (250, 245), (660, 245), (660, 221)], (455, 240)),
    (Phase.JOIN, Phase.WRITE): ([(415, 141), (470, 175)], (465, 155)),
    (Phase.JOIN, Phase.CLOSE): ([(420, 118), (660, 118), (660, 175)], (540, 112)),
    (Phase.JOIN, Phase.SETTLED): ([(330, 118), (80, 118), (80, 175)], (205, 112)),
    (Phase.WRITE, Phase.CLOSE): ([(560, 188), (630, 188)], (594, 182)),
    (Phase.CLOSE, Phase.WRITE): ([(630, 208), (560, 208)], (594, 222)),
    (Phase.CLOSE, Phase.SETTLED): ([(710, 175), (710, 50), (50, 50), (50, 175)], (380, 44)),
    (Phase.CLOSE, Phase.FILL): ([(710, 221), (710, 270), (275, 270), (275, 221)], (490, 265)),
    (Phase.REBUILD, Phase.REBUILT): ([(110, 323), (220, 323)], (165, 317)),
    (Phase.REBUILT, Phase.SETTLED): ([(235, 300), (235, 285), (65, 285), (65, 221)], (150, 280)),
    (Phase.REBUILT, Phase.FILL): ([(298, 300), (298, 221)], (352, 292)),
}


def phases() -> Picture:
    """The phases of a transition, by the table that each batch follows."""
    picture = Picture(760, 365, "The phases of a transition")
    for phase, (x, y, width) in _PHASES.items():
        picture.box(x, y, width, 46, phase.value, "" if phase is Phase.SETTLED else "accent")
    for phase, following in NEXT.items():
        for other, why in following.items():
            way, label = _WAYS[phase, other]
            picture.arrow(way)
            picture.text(*label, why, "soft", "middle")
    return picture


def start() -> Picture:
    """What a start decides, from what it finds."""
    picture = Picture(760, 330, "What a start decides")
    picture.box(20, 20, 220, 50, ["pipeline file", "read and checked"])
    picture.box(330, 20, 220, 50, ["take over", "fence older instances"], "accent")
    picture.arrow([(240, 45), (330, 45)])
    outcomes = [
        ("the same plan", "go on after the last batch"),
        ("another plan", "an edit: finish, fill, switch"),
        ("another number of shards", "rewrite the state, then go on"),
        ("no checkpoint, no topics", "begin"),
        ("topics without their checkpoint", "refuse, and name ikebana recover"),
    ]
    picture.line([(440, 70), (440, 82), (40, 82), (40, 297)])
    for number, (when, then) in enumerate(outcomes):
        y = 95 + 46 * number
        picture.arrow([(40, y + 18), (70, y + 18)])
        picture.box(70, y, 250, 36, when)
        picture.arrow([(320, y + 18), (400, y + 18)])
        picture.box(400, y, 290, 36, then, "warm" if then.startswith("refuse") else "")
    return picture


def deployment() -> Picture:
    """The pods of a release, and what they talk to."""
    picture = Picture(760, 375, "A release on Kubernetes")
    picture.box(20, 145, 130, 80, ["Kafka", "inputs, outputs,", "progress"])
    picture.area(210, 20, 330, 335, "")
    picture.text(225, 42, "release of the chart", "soft")
    picture.box(235, 55, 280, 56, ["driver", "one pod; mints and publishes"], "accent")
    picture.box(235, 130, 130, 56, ["executor", "owners of shards"])
    picture.box(385, 130, 130, 56, ["executor", "owners of shards"])
    picture.box(235, 205, 280, 56, ["serve", "collections over HTTP, console"], "accent")
    picture.box(235, 280, 280, 56, ["deliver", "one pod for each sink"], "accent")
    picture.box(610, 55, 130, 60, ["checkpoint", "volume or bucket"])
    picture.box(610, 205, 130, 56, ["readers", "HTTP, SQL, Python"])
    picture.box(610, 280, 130, 56, ["tables", "database or lake"])
    for begins, ends in ((155, 85), (175, 158), (195, 232), (215, 308)):
        picture.arrow([(150, begins), (235, ends)])
    picture.arrow([(515, 83), (610, 83)])
    picture.arrow([(515, 158), (650, 158), (650, 115)])
    picture.arrow([(610, 233), (515, 233)])
    picture.arrow([(515, 308), (610, 308)])
    return picture


PICTURES: dict[str, Callable[[], Picture]] = {
    "upserts": upserts,
    "frontier": frontier,
    "exchange": exchange,
    "delta-path": delta_path,
    "shared-arrangements": shared,
    "edit": edit,
    "phases": phases,
    "start": start,
    "deployment": deployment,
}


def main(folder: Path) -> None:
    """Write all pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        (folder / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
