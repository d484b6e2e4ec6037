"""A headless Chromium that looks at a page, and notes what it complains of."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from support.waiting import patient

# Where pictures of the pages are written, if anywhere.
_PICTURES = "IKEBANA_SCREENSHOTS"
# For a machine without a free processor, too: it is the end of what hangs.
_MOST_MS = patient(60) * 1000
expect.set_options(timeout=_MOST_MS)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the Chromium of the system; skip the test where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("there is no chromium; install it with: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=["--disable-dev-shm-usage"], timeout=_MOST_MS
        )
        yield browser
        browser.close()


@contextmanager
def looking(
    browser: Browser, *, width: int = 1280, scheme: Literal["light", "dark"] = "light"
) -> Iterator[Page]:
    """Open a page that complains of nothing: no error, no refusal by its policy, no dialog."""
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(_MOST_MS)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on(
        "console",
        # A refused request is logged as an error, too; the page shows it by itself.
        lambda said: (
            complaints.append(said.text)
            if said.type == "error" and "Failed to load resource" not in said.text
            else None
        ),
    )
    yield page
    context.close()
    assert complaints == []


def picture(page: Page, name: str) -> None:
    """Write a picture of a page, for the documentation."""
    if folder := os.environ.get(_PICTURES):
        page.screenshot(path=Path(folder) / f"{name}.png")
