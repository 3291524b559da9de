"""Take the picture of the page that the README shows, from a service of the demo's index.

make demo && pseudoquery serve demo-index
python docs/screenshot.py http://localhost:8000 docs/page.png
"""

from __future__ import annotations

import shutil
import sys
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import sync_playwright

QUESTION = "How do schools without state funding pay their way?"
SIZE = {"width": 1200, "height": 880}
COLOURS = 256
"""So many are enough for the page, in a third of the bytes."""


def take(url: str, path: str) -> None:
    """Ask a question, wait until the hits in sight are explained, and keep what is seen."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]
        page.goto(f"{url}/#q={quote(QUESTION)}")
        page.locator(".hit:not([aria-busy])").nth(2).wait_for()
        page.screenshot(path=path)
        browser.close()
    with Image.open(path) as picture:
        # The maximum coverage leaves rare colours alone, such as those of the smallest bars.
        small = picture.convert("RGB").quantize(
            COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    small.save(path, optimize=True)


if __name__ == "__main__":
    take(sys.argv[1].rstrip("/"), sys.argv[2])
