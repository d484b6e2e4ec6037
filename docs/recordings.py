"""Record the moving pictures of README.md: the first pipeline in a terminal, and the console.

    python docs/recordings.py [FOLDER]

Both are real runs, over brokers that this starts.  The first does what README.md says, and is
drawn as `first-pipeline.svg`: each line of output appears when it was printed, but a command that
takes long is shown in two seconds.  The second goes through the pages of a run and of a server,
as `console-light.webp` and `console-dark.webp`.  It needs Debian's `chromium` and `ffmpeg`, and
Playwright.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from html import escape
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page, expect
from screenshots import IMAGES, SCHEMES, chromium, consoles, open_with_token  # type: ignore[import-not-found]

from ikebana.processor.kafka import broker

README = Path(__file__).resolve().parents[1] / "README.md"
COMMANDS = (
    "cat first.yaml",
    "python flights.py",
    "ikebana run first.yaml --once",
    "ikebana follow whereabouts --until now",
    "ikebana snapshot whereabouts",
    "ikebana check whereabouts",
)
COLUMNS, ROWS = 92, 24
LINE, LETTER, MARGIN, TOP = 19.0, 8.1, 16, 44
TYPED_S, SHOWN_S, READ_S, READ_A_LINE_S = 0.04, 2.0, 1.2, 0.2

FRAMES_A_SECOND = 4
SIZE = {"width": 1100, "height": 680}

_STYLE = """\
text { font: 13.5px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328;
  white-space: pre; }
.page { fill: #ffffff; stroke: #d1d9e0; } .bar { fill: #f6f8fa; stroke: #d1d9e0; }
.command { font-weight: 600; } .prompt { fill: #1a7f37; font-weight: 600; }
.dot { fill: #d1d9e0; } .title { fill: #59636e; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .page { fill: #0d1117; stroke: #3d444d; }
.bar { fill: #151b23; stroke: #3d444d; } .prompt { fill: #3fb950; } .dot { fill: #3d444d; }
.title { fill: #9198a1; }
}"""


class Line(NamedTuple):
    """A line of a terminal, when it begins to appear, and whether somebody types it."""

    at: float
    text: str
    is_typed: bool


class Terminal:
    """What commands print, with the seconds at which a reader sees it."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.lines: list[Line] = []
        self.now = 0.5
        self._folder = folder
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "IKEBANA_BOOTSTRAP_SERVERS": servers}

    def do(self, command: str) -> None:
        """Type a command, and wait until it has ended."""
        self.lines.append(Line(self.now, command, is_typed=True))
        self.now += TYPED_S * len(command) + 0.3
        began, printed = time.monotonic(), list[tuple[float, str]]()
        with subprocess.Popen(
            command,
            shell=True,
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                rest = line.rstrip("\n")
                while True:
                    printed.append((time.monotonic() - began, rest[:COLUMNS]))
                    rest = rest[COLUMNS:]
                    if not rest:
                        break
        if process.returncode:
            raise SystemExit(f"{command} ended with {process.returncode}: {printed}")
        took = time.monotonic() - began
        faster = min(1.0, SHOWN_S / took)
        self.lines += [Line(self.now + at * faster, text, is_typed=False) for at, text in printed]
        self.now += took * faster + READ_S + READ_A_LINE_S * len(printed)


def first_pipeline(folder: Path, servers: str) -> Terminal:
    """Do in a folder what README.md says of its first pipeline."""
    text = README.read_text().replace("localhost:9092", servers)
    for kind, name in (("python", "flights.py"), ("yaml", "first.yaml")):
        found = re.search(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        assert found is not None, kind
        (folder / name).write_text(found[1])
    terminal = Terminal(folder, servers)
    for command in COMMANDS:
        terminal.do(command)
    return terminal


def drawn(lines: list[Line], ends: float, title: str) -> str:
    """The lines as an SVG that shows them one after the other, again and again.

    Where nothing moves, as in print, it shows the last screen.
    """
    lasts = f'dur="{ends:.2f}s" repeatCount="indefinite" calcMode="discrete"'
    width, height = round(COLUMNS * LETTER + 2 * MARGIN), round(ROWS * LINE + TOP + MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        f'<path class="bar" d="M0.5 32 V8 Q0.5 0.5 8 0.5 H{width - 8} '
        f'Q{width - 0.5} 0.5 {width - 0.5} 8 V32 Z"/>',
        *(f'<circle class="dot" cx="{x}" cy="16" r="5"/>' for x in (18, 36, 54)),
        f'<text class="title" x="{width / 2}" y="21" text-anchor="middle">{escape(title)}</text>',
        f'<clipPath id="screen"><rect x="0" y="{TOP}" width="{width}" height="{height - TOP}"/>'
        "</clipPath>",
        '<g clip-path="url(#screen)">',
    ]
    moves = [(0.0, 0.0)]
    moves += [(line.at, -LINE * (row - ROWS)) for row, line in enumerate(lines, 1) if row > ROWS]
    values = ";".join(f"0 {y:g}" for _, y in moves)
    times = ";".join(f"{at / ends:.4f}" for at, _ in moves)
    parts.append(f'<g transform="translate(0 {moves[-1][1]:g})">')
    if len(moves) > 1:
        parts.append(
            f'<animateTransform attributeName="transform" type="translate" values="{values}" '
            f'keyTimes="{times}" {lasts}/>'
        )
    for row, line in enumerate(lines):
        appears = (
            f'<animate attributeName="opacity" values="0;1" keyTimes="0;{line.at / ends:.4f}" '
            f"{lasts}/>"
        )
        y = TOP + LINE * (row + 0.75)
        if not line.is_typed:
            parts.append(f'<text x="{MARGIN}" y="{y:g}">{escape(line.text)}{appears}</text>')
            continue
        parts.append(f'<text class="prompt" x="{MARGIN}" y="{y:g}">${appears}</text>')
        letters = [
            f'<tspan x="{MARGIN + LETTER * (2 + column):g}" opacity="1">{escape(letter)}'
            f'<animate attributeName="opacity" values="0;1" '
            f'keyTimes="0;{(line.at + TYPED_S * column) / ends:.4f}" {lasts}/></tspan>'
            for column, letter in enumerate(line.text)
            if letter != " "
        ]
        parts.append(f'<text class="command" y="{y:g}">{"".join(letters)}</text>')
    return "\n".join([*parts, "</g>", "</g>", "</svg>"]) + "\n"


class Film:
    """Pictures of a page, one each part of a second, while something is done with it."""

    def __init__(self, page: Page, folder: Path) -> None:
        self._page, self._folder = page, folder
        self._frames = 0

    def watch(self, seconds: float) -> None:
        """Take pictures for some seconds."""
        for _ in range(max(1, round(seconds * FRAMES_A_SECOND))):
            began = time.monotonic()
            self._page.screenshot(path=self._folder / f"{self._frames:04d}.png")
            self._frames += 1
            rest = 1 / FRAMES_A_SECOND - (time.monotonic() - began)
            self._page.wait_for_timeout(max(0.0, 1000 * rest))


def film_console(page: Page, run: str, served: str, folder: Path) -> None:
    """Go through the pages of a run and of a server."""
    film = Film(page, folder)
    open_with_token(page, run)
    expect(page.locator(".chart path.line[d*=L]").nth(1)).to_be_attached()
    film.watch(6)
    page.goto(f"{run}#/plan")
    expect(page.locator(".last-edit li").first).to_be_attached()
    film.watch(5)
    open_with_token(page, served)
    page.goto(f"{served}#/collections/shop.sold")
    expect(page.locator("main > .found tr.inserted").first).to_be_attached()
    film.watch(8)
    page.goto(f"{served}#/sql")
    page.locator("textarea").fill("")
    query = (
        'SELECT country, count(*) AS orders\nFROM "shop.named"\nGROUP BY ALL ORDER BY orders DESC'
    )
    for part in re.findall(r"\S+\s*", query):
        page.locator("textarea").press_sequentially(part)
        film.watch(0.4)
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".found td").first).to_be_visible()
    film.watch(5)


def animate(folder: Path, to: Path) -> None:
    """Make an animated picture of all frames in a folder."""
    subprocess.run(
        [
            *("ffmpeg", "-loglevel", "error", "-y", "-framerate", str(FRAMES_A_SECOND)),
            *("-i", folder / "%04d.png", "-c:v", "libwebp_anim", "-loop", "0"),
            *("-compression_level", "6", "-quality", "70", to),
        ],
        check=True,
    )


def main() -> None:
    """Record both."""
    images = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    images.mkdir(exist_ok=True, parents=True)
    terminal(images)
    with chromium() as browser, consoles(browser) as (run, served):
        console(browser, run, served, images)


def terminal(images: Path) -> None:
    """Record the first pipeline."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name) / "work"
        work.mkdir()
        creates = {"auto.create.topics.enable": "true"}
        with broker.running(Path(name) / "kafka", settings=creates) as running:
            seen = first_pipeline(work, running.bootstrap_servers)
        to = images / "first-pipeline.svg"
        # Readers have their broker where README.md has it.
        text = drawn(seen.lines, seen.now + 2, "The first pipeline")
        to.write_text(text.replace(running.bootstrap_servers, "localhost:9092"))
        print(f"{to.name}: {seen.now:.0f} s, {to.stat().st_size:,} bytes")


def console(browser: Browser, run: str, served: str, images: Path) -> None:
    """Record the console, in light and dark."""
    for scheme in SCHEMES:
        with tempfile.TemporaryDirectory() as name:
            context = browser.new_context(viewport=SIZE, color_scheme=scheme)  # type: ignore[arg-type]
            film_console(context.new_page(), run, served, Path(name))
            context.close()
            to = images / f"console-{scheme}.webp"
            animate(Path(name), to)
            print(f"{to.name}: {to.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
