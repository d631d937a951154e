"""Takes the pictures of the studio in docs/ again: `make screenshots`. Needs Chromium and the development extras."""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path
from urllib.parse import urlencode

import uvicorn
from playwright.sync_api import Browser, sync_playwright

from regard.studio.app import make_app
from regard.studio.serve import HOST, listen
from regard.studio.shelf import Shelf

DOCS = Path(__file__).resolve().parents[1] / "docs"
TEXT = "The animal did not cross the street because it was too tired."
PAIR = {"text": "Did the unhappy cat sleep?", "text_b": "Yes, it was overwhelmingly tired."}

# Name of the picture: the view, its parameters, the window's width, the colours.
PICTURES: dict[str, tuple[str, dict[str, str], int, str]] = {
    "studio-attention": ("attention", {"text": TEXT, "layer": "3", "heads": "all", "lock": "r9"}, 1280, "light"),
    "studio-attention-model": ("attention", {"text": TEXT, "mode": "grid", "layer": "3", "heads": "2"}, 1280, "light"),
    "studio-attention-neurons": (
        "attention",
        {"text": TEXT, "mode": "neuron", "layer": "2", "lock": "r9"},
        1280,
        "dark",
    ),
    "studio-attention-phone": ("attention", {**PAIR, "layer": "2", "heads": "1,3", "lock": "r3"}, 390, "dark"),
}


def main() -> None:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        sys.exit("error: Chromium is not here (Debian: apt-get install chromium)")
    shelf = Shelf(["regard-bert"])
    shelf.start().join()
    with listen(0) as taken, sync_playwright() as playwright:
        server = uvicorn.Server(uvicorn.Config(make_app(shelf), log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]})
        thread.start()
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            for name in sys.argv[1:] or PICTURES:
                take(browser, f"http://{HOST}:{taken.getsockname()[1]}", name)
        finally:
            browser.close()
            server.should_exit = True
            thread.join()


def take(browser: Browser, address: str, name: str) -> None:
    view, parameters, width, scheme = PICTURES[name]
    dark = "dark" if scheme == "dark" else "light"
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=dark)
    page.goto(f"{address}/#{view}?{urlencode(parameters)}")
    page.wait_for_selector(".keep")
    page.wait_for_timeout(1000)  # thumbnails are drawn a few a frame
    page.screenshot(path=DOCS / f"{name}.png", full_page=True)
    page.close()
    print(DOCS / f"{name}.png")


if __name__ == "__main__":
    main()
