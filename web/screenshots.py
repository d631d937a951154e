"""Take the screenshots of the studio in docs/: `make screenshots`. Needs Chromium and the development extras.

    python web/screenshots.py [--model DIR ...] [--output FOLDER] [NAME ...]

Every view of the studio has at least one entry in PICTURES. Some need a kind of model that is not built in, such as a
classifier: they use the first --model of that kind, and are skipped without one. NAME is a picture; all by default.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode, urljoin

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from regard.inference.model_summary import ModelCapability
from regard.known import builtin_names

ROOT = Path(__file__).resolve().parents[1]
DOCS, LISTED = ROOT / "docs", ROOT / "web" / "src" / "views" / "index.ts"
PAGES = {"home", "learn"}  # of the studio, beside its views
ELSEWHERE = {"decoding", "lesson", "story"}  # only pages of the command line
TALLEST = 1700  # pixels
LARGEST = 300_000  # bytes; a larger picture gets fewer colors
TEXT = "The animal did not cross the street because it was too tired."
PAIR = {"text": "Did the unhappy cat sleep?", "text_b": "Yes, it was overwhelmingly tired."}
MARKET = "Ich muss auf den Markt gehen."


@dataclass(frozen=True)
class Shot:
    """A view, the parameters of its address, and the browser settings."""

    view: str
    parameters: dict[str, str] = field(default_factory=dict)
    needs: ModelCapability | None = None
    width: int = 1280
    scheme: Literal["light", "dark"] = "light"


PICTURES: dict[str, Shot] = {
    "home": Shot("home"),
    "home-dark": Shot("home", width=1920, scheme="dark"),
    "home-phone": Shot("home", width=390),
    "learn": Shot("learn"),
    "learn-attention": Shot("learn", {"chapter": "attention"}),
    "attention": Shot("attention", {"text": TEXT, "model": "regard-gpt", "layer": "5", "heads": "3", "token": "it"}),
    "attention-wide": Shot(
        "attention", {"text": TEXT, "model": "regard-bert", "layer": "4", "heads": "all", "lock": "r9"}, width=1920
    ),
    "attention-model": Shot(
        "attention", {"text": TEXT, "model": "regard-bert", "mode": "grid", "layer": "4", "heads": "2"}
    ),
    "attention-neurons": Shot(
        "attention", {"text": TEXT, "model": "regard-bert", "mode": "neuron", "layer": "3", "lock": "r9"}, scheme="dark"
    ),
    "attention-phone": Shot(
        "attention", {**PAIR, "model": "regard-bert", "layer": "3", "heads": "1,3", "lock": "r3"}, width=390
    ),
    "compare": Shot("compare"),
    "fill": Shot("fill"),
    "heads": Shot("heads"),
    "lens": Shot("lens"),
    "logit-attribution": Shot("logit_attribution"),
    "patch": Shot("patch"),
    "long-attention": Shot("long_attention"),
    "activations": Shot("activations"),
    "tokenize": Shot("tokenize"),
    "generation": Shot(
        "generation", {"prompt": "This is a story about me and my brothers", "max_new_tokens": "40"}, "text-generation"
    ),
    "similarity": Shot("similarity", {}, "image-text"),
    "senses": Shot("senses"),
    "map": Shot("map"),
    "search": Shot("search", {}, "sentence-embedding"),
    "clusters": Shot("clusters", {}, "sentence-embedding"),
    "evaluation": Shot("evaluation"),
    "layers": Shot("layers"),
    "features": Shot("features", {"step": "6"}),
    "tasks": Shot("tasks"),
    "translation": Shot("translation"),
    "figure": Shot("figure"),
    "positions": Shot("figure", {"text": MARKET, "mode": "positions"}, "translation"),
    "ablation": Shot("ablation", {"text": TEXT, "model": "regard-bert", "heads": "1.*"}),
    "faithfulness": Shot("faithfulness"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    parser.add_argument("--model", action="append", default=[], metavar="DIR")
    parser.add_argument("--output", type=Path, default=DOCS)
    options = parser.parse_args()
    if unknown := set(options.names) - set(PICTURES):
        sys.exit(f"error: there is no picture {', '.join(sorted(unknown))}; they are {', '.join(PICTURES)}")
    if missing := views() - ELSEWHERE - {shot.view for shot in PICTURES.values()}:
        sys.exit(f"error: PICTURES has no picture of the view {', '.join(sorted(missing))}")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        sys.exit("error: Chromium is not installed (Debian: apt-get install chromium)")
    names = dict.fromkeys([*builtin_names(), *options.model])
    models = [word for name in names for word in ("--model", name)]
    command = [sys.executable, "-m", "regard", "studio", "--port", "0", *models]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as studio,
        sync_playwright() as playwright,
    ):
        assert studio.stdout is not None
        address = re.search(r"http://\S+", studio.stdout.readline())
        assert address is not None
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            states = load_models(browser, address[0])
            for name in options.names or PICTURES:
                shot, path = PICTURES[name], options.output / f"studio-{name}.png"
                able = (one["name"] for one in states if shot.needs in (None, *(one["capabilities"] or ())))
                model = next(able, None)
                if model is None:
                    print(f"{path}: skipped; it needs --model DIR of a model for {shot.needs!r}")
                    continue
                take(browser, address[0], shot, model, path)
        finally:
            browser.close()
            studio.terminate()


def load_models(browser: Browser, address: str) -> list[dict[str, Any]]:
    """The models of the studio once it knows all of them."""
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(address)
        while True:
            states: list[dict[str, Any]] = page.request.get(urljoin(address, "/api/models")).json()["models"]
            if failed := [state["error"] for state in states if state["state"] == "failed"]:
                sys.exit(f"error: {failed[0]}")
            if all(state["state"] == "ready" for state in states):
                return states
            page.wait_for_timeout(200)


def views() -> set[str]:
    """The names of the page's views, from its list: `longAttention` is the view long_attention."""
    listed = re.search(r"export const views = \[(.*?)\]", LISTED.read_text(encoding="utf-8"), re.DOTALL)
    assert listed is not None, f"{LISTED} has no list of views"
    names = (name.strip() for name in listed[1].split(","))
    return {re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name) for name in names if name}


def take(browser: Browser, address: str, shot: Shot, model: str, path: Path) -> None:
    page = browser.new_page(viewport={"width": shot.width, "height": 900}, color_scheme=shot.scheme)
    page.set_default_timeout(120_000)
    # A view without parameters opens on its own example and model.
    parameters = {"model": model, **shot.parameters} if shot.needs else shot.parameters
    page.goto(f"{address}#{shot.view}?{urlencode(parameters)}")
    ready(page, ".home .chapters a" if shot.view == "home" else ".learn" if shot.view == "learn" else ".export-panel")
    height = min(TALLEST, page.evaluate("document.documentElement.scrollHeight"))
    clip = {"x": 0, "y": 0, "width": shot.width, "height": height}
    content = page.screenshot(full_page=True, clip=clip)  # type: ignore[arg-type]
    page.close()
    path.write_bytes(small(content))
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def small(content: bytes) -> bytes:
    """Compress a PNG; if that is not enough, reduce it to 256 colors."""
    with Image.open(io.BytesIO(content)) as opened:
        image = opened.convert("RGB")
    saved = io.BytesIO()
    image.save(saved, "PNG", optimize=True)
    if saved.tell() > LARGEST:
        saved = io.BytesIO()
        image.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            saved, "PNG", optimize=True
        )
    return saved.getvalue()


def ready(page: Page, selector: str) -> None:
    """Wait until the result is shown and nothing is being computed or drawn."""
    page.wait_for_selector(selector)
    page.wait_for_selector("[aria-busy=true]", state="detached")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1500)  # thumbnails are drawn a few per frame
    if page.get_by_role("alert").count():
        sys.exit(f"error: the page shows {page.get_by_role('alert').first.inner_text()!r}")


if __name__ == "__main__":
    main()
