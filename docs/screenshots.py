"""Take the pictures of docs/console.md from a pipeline that runs, with its console and a server.

    python docs/screenshots.py [--to FOLDER] [VIEW ...]

starts a broker, runs a shop, edits its plan, goes on writing to its topics (some records late,
some wrong), and takes each view in light and dark, 1280 and 400 pixels wide: all views, or those
that are named, such as `run` or `sql`.  It needs Debian's `chromium` and Playwright.
"""

import argparse
import base64
import json
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, expect, sync_playwright

from ikebana.processor.kafka import broker, client, topics

IMAGES = Path(__file__).with_name("images")
IKEBANA = [sys.executable, "-c", "from ikebana.processor.cli.main import main; main()"]
TOKEN = "a-token-of-the-pictures"
WIDTHS = (1280, 400)
NARROW_HEIGHT = 1100
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PRODUCTS = ["tea", "rice", "bowls", "vases", "paper", "ink", "scissors", "moss"]
COUNTRIES = ["JP", "NL", "PT", "BR", "KE"]
CUSTOMERS = 60
# So long the run is watched before pictures are taken, so that charts have something to show.
WATCHED_S = 75.0
TIMEOUT_S = 600.0

FIRST = """
pipeline: shop
inputs:
  orders:
    topic: orders
    format: debezium-json
    columns: {id: BIGINT, product: VARCHAR, customer: BIGINT, quantity: BIGINT}
    event_time: {clock: kafka, lateness: 3s}
operators:
  order: {upsert: orders}
  large: {linear: order, where: quantity > 3}
  sold: {reduce: order, by: product, aggregates: {orders: count(*)}}
outputs:
  large: {from: large, topic: shop.large}
  sold: {from: sold, topic: shop.sold}
errors: {topic: shop.errors}
"""
SECOND = """
pipeline: shop
inputs:
  orders:
    topic: orders
    format: debezium-json
    columns: {id: BIGINT, product: VARCHAR, customer: BIGINT, quantity: BIGINT}
    event_time: {clock: kafka, lateness: 3s}
  customers:
    topic: customers
    columns: {name: VARCHAR, country: VARCHAR}
operators:
  order: {upsert: orders}
  customer: {upsert: customers}
  sold: {reduce: order, by: product, aggregates: {orders: count(*), pieces: sum(quantity)}}
  named:
    delta_join: {o: order, c: customer}
    where: ["o.customer = CAST(c.key AS BIGINT)"]
    select: {product: o.product, name: c.name, country: c.country}
outputs:
  sold: {from: sold, topic: shop.sold}
  named: {from: named, topic: shop.named}
errors: {topic: shop.errors}
"""


# Decodes a PNG, which the browser has made.
PIXELS = """async (png) => {
  const image = new Image();
  image.src = `data:image/png;base64,${png}`;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, image.width, image.height);
  const parts = [];
  for (let at = 0; at < data.length; at += 32768) {
    parts.push(String.fromCharCode(...data.subarray(at, at + 32768)));
  }
  return btoa(parts.join(""));
}"""


class Shop:
    """The topics of a shop, into which more is written until it is closed."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.servers, self.folder = servers, folder
        self._producer = Producer({"bootstrap.servers": servers})
        self._random = random.Random(7)
        self._rows: dict[int, dict[str, Any]] = {}
        self._closing = threading.Event()
        admin = client.admin({"bootstrap.servers": servers})
        for topic in ("orders", "customers"):
            topics.create(admin, topic, 1, 1, {})
        for number in range(CUSTOMERS):
            self._customer(number)
        for number in range(300):
            self._order(number)
        self._producer.flush(30)

    def file(self, text: str) -> Path:
        """Write the pipeline file."""
        kafka = {"bootstrap.servers": self.servers}
        run = {"checkpoint": str(self.folder / "checkpoint"), "master": "local[2]", "shards": 2}
        columns = {"product": {"type": "VARCHAR", "whole": "key"}, "orders": "BIGINT"}
        table = {"from": "sold", "mode": "changes", "columns": columns}
        lake = {"parquet": {"folder": str(self.folder / "lake")}, "tables": {"sold": table}}
        parts = {"kafka": kafka, "run": run, "deliver": {"lake": lake}}
        found = text + "".join(f"{name}: {json.dumps(part)}\n" for name, part in parts.items())
        path = self.folder / "shop.yaml"
        path.write_text(found)
        return path

    @contextmanager
    def open(self) -> Iterator[None]:
        """Write a few records a second within a `with` block."""
        thread = threading.Thread(target=self._sell, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._closing.set()
            thread.join()

    def _sell(self) -> None:
        number = 300
        while not self._closing.wait(0.1):
            for _ in range(self._random.randrange(6)):
                number += 1
                self._order(self._random.randrange(number))
            if number % 40 == 0:
                self._customer(self._random.randrange(CUSTOMERS))
            self._wrong(number)
            self._producer.poll(0)

    def _order(self, number: int) -> None:
        row = {
            "id": number,
            "product": self._random.choice(PRODUCTS),
            "customer": self._random.randrange(CUSTOMERS),
            "quantity": self._random.randrange(1, 10),
        }
        if number > 320:
            row["gift"] = self._random.random() < 0.2
        self._change(number, self._rows.get(number), row)
        self._rows[number] = row

    def _wrong(self, number: int) -> None:
        """Write something that is late, wrong, or unlike what was there, now and then."""
        chance, now = self._random.random(), time.time_ns() // 1_000_000
        row = self._rows[number % 300]
        if chance < 0.02:
            self._change(row["id"], row, row, at=now - self._random.randrange(20_000, 90_000))
        elif chance < 0.04:
            self._change(row["id"], row | {"quantity": 0}, row)
        elif chance < 0.06:
            self._change(row["id"], row, row | {"quantity": "a dozen"})

    def _change(self, key: int, before: Any, after: Any, at: int | None = None) -> None:
        value = {"op": "u" if before else "c", "before": before, "after": after}
        value["source"] = {"db": "shop", "schema": "public", "table": "orders"}
        stamp = time.time_ns() // 1_000_000 if at is None else at
        encoded = json.dumps({"id": key}), json.dumps(value)
        self._producer.produce("orders", encoded[1], encoded[0], timestamp=stamp)

    def _customer(self, number: int) -> None:
        name = f"{self._random.choice(['Aiko', 'Bram', 'Caio', 'Dina', 'Ewa'])} {number}"
        value = {"name": name, "country": self._random.choice(COUNTRIES)}
        self._producer.produce("customers", json.dumps(value), json.dumps(number))


@contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """Run a command with a console within a `with` block, which gets the console's URL."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([*IKEBANA, *arguments], stderr=log)
        try:
            yield _url(process, log)
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


def _url(process: "subprocess.Popen[bytes]", log: Any) -> str:
    deadline, words = time.monotonic() + TIMEOUT_S, list[str]()
    while time.monotonic() < deadline:
        log.seek(0)
        words = log.read().split()
        for word in words:
            if word.endswith("/console/"):
                return str(word)
        if process.poll() is not None:
            break
        time.sleep(0.2)
    raise SystemExit(f"there is no console: {' '.join(words)}")


class View(NamedTuple):
    """A view of a console: its name in files, the place in its address, and what it waits for.

    `height` is that of its picture.
    """

    name: str
    hash: str
    shows: str
    height: int = 860


OF_RUN = (
    View("run", "#/", ".chart path.line", 1010),
    View("plan", "#/plan", ".last-edit li", 1360),
    View("errors", "#/errors", ".places", 1780),
)
OF_SERVER = (
    View("collections", "#/", ".chart path.line"),
    View("live", "#/collections/shop.sold", "main > .found tr.inserted"),
    View("standing", "#/errors", ".rows tr"),
    View("sql", "#/sql", "textarea"),
)


def take(browser: Browser, url: str, views: Sequence[View], folder: Path) -> None:
    """Take views of a console in each colour and width."""
    for scheme in SCHEMES:
        for width in WIDTHS:
            size = {"width": width, "height": 860}
            context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
            page = context.new_page()
            open_with_token(page, url)
            for view in views:
                height = min(view.height, NARROW_HEIGHT) if width == min(WIDTHS) else view.height
                page.set_viewport_size({"width": width, "height": height})
                page.goto(url + view.hash)
                expect(page.locator(view.shows).first).to_be_attached()
                _arrange(page, view)
                _picture(page, folder / f"console-{view.name}-{width}-{scheme}.png")
            context.close()


def open_with_token(page: Page, url: str) -> None:
    """Open a console with the token."""
    page.goto(url)
    page.evaluate(f"sessionStorage.setItem('ikebana-token', '{TOKEN}')")
    page.reload()


def _arrange(page: Page, view: View) -> None:
    """Show what a view is for."""
    if view.name in ("run", "collections"):
        # A path of at least one line.
        expect(page.locator(".chart path.line[d*=L]").nth(1)).to_be_attached()
    if view.name == "errors":
        shows = page.locator("section", has_text="Late records").get_by_role("button")
        shows.first.click()
        expect(page.locator(".look code").first).to_be_visible()
        page.get_by_role("button", name="Compare the newest records of orders").click()
        expect(page.locator(".schema td").first).to_be_visible()
        late = page.get_by_role("heading", name="Late records", exact=True)
        is_narrow = page.evaluate("innerWidth") < min(WIDTHS) + 1
        page.evaluate("scrollTo(0, 0)")
        if is_narrow:
            late.evaluate("heading => heading.scrollIntoView()")
    if view.name == "sql":
        text = (
            'SELECT country, count(*) AS orders\nFROM "shop.named"\n'
            "GROUP BY country ORDER BY orders DESC"
        )
        page.locator("textarea").fill(text)
        page.get_by_role("button", name="Run").click()
        expect(page.locator(".found td").first).to_be_visible()


def _picture(page: Page, file: Path) -> None:
    """Write a picture of a page with 256 colours, which takes a third of the bytes."""
    taken = base64.b64encode(page.screenshot()).decode()
    # The page's own policy would not let the picture in.
    aside = page.context.new_page()
    raw = base64.b64decode(aside.evaluate(PIXELS, taken))
    size = page.viewport_size
    aside.close()
    assert size is not None, "a page without a size"
    file.write_bytes(_png(raw, size["width"], size["height"]))
    print(f"{file.name}: {file.stat().st_size:,} bytes")


def _png(raw: bytes, width: int, height: int) -> bytes:
    """Encode red, green, blue and alpha of each pixel as a PNG with a palette."""
    colours = np.frombuffer(raw, np.uint8).reshape(-1, 4)[:, :3]
    packed = colours.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    known, which, counts = np.unique(packed, return_inverse=True, return_counts=True)
    kept = known[np.argsort(-counts, kind="stable")[:256]]
    split = [np.stack([(each >> s) & 255 for s in (16, 8, 0)], 1) for each in (known, kept)]
    apart = ((split[0][:, None].astype(np.int32) - split[1][None]) ** 2).sum(2)
    pixels = apart.argmin(1).astype(np.uint8)[which].reshape(height, width)
    # Each row begins with its filter, none.
    rows = np.pad(pixels, ((0, 0), (1, 0))).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    palette = split[1].astype(np.uint8).tobytes()
    parts = (
        (b"IHDR", head),
        (b"PLTE", palette),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part))
        for name, part in parts
    )


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's browser, within a `with` block."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    expect.set_options(timeout=TIMEOUT_S * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found)
        yield browser
        browser.close()


@contextmanager
def consoles(browser: Browser) -> Iterator[tuple[str, str]]:
    """The consoles of a run and of a server, by their URLs, with something to show."""
    with (
        tempfile.TemporaryDirectory() as name,
        broker.running(Path(name) / "kafka") as running,
    ):
        folder = Path(name)
        tokens = folder / "tokens"
        tokens.write_text(f"{TOKEN}\n")
        shop = Shop(running.bootstrap_servers, folder)
        subprocess.run([*IKEBANA, "run", str(shop.file(FIRST)), "--once"], check=True)
        common = (str(shop.file(SECOND)), "--http=127.0.0.1:0", f"--token-file={tokens}")
        with (
            shop.open(),
            serving("run", *common) as run,
            serving("serve", *common, f"--data={folder / 'served'}") as served,
        ):
            print(f"watching {run} and {served}")
            page = browser.new_page()
            open_with_token(page, run)
            ready = page.locator(".tiles", has_text="ready: lag")
            expect(ready).to_be_visible()
            page.wait_for_timeout(WATCHED_S * 1000)
            page.close()
            yield run, served


def main() -> None:
    """Take the pictures of the views that are named, or of all."""
    names = [view.name for view in (*OF_RUN, *OF_SERVER)]
    parser = argparse.ArgumentParser(description="Take the pictures of docs/console.md.")
    parser.add_argument("--to", type=Path, default=IMAGES, metavar="FOLDER")
    parser.add_argument("views", nargs="*", metavar="VIEW", help=", ".join(names))
    chosen = parser.parse_args()
    if strange := set(chosen.views) - set(names):
        parser.error(f"no view is named {', '.join(strange)}; there are {', '.join(names)}")
    chosen.to.mkdir(exist_ok=True, parents=True)
    with chromium() as browser, consoles(browser) as (run, served):
        for url, views in ((run, OF_RUN), (served, OF_SERVER)):
            taken = [view for view in views if not chosen.views or view.name in chosen.views]
            take(browser, url, taken, chosen.to)


if __name__ == "__main__":
    main()
