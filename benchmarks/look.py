"""A page of 512 tokens: how large it is, how soon it is seen, and how quickly another head is, with BertViz beside it.

    python -m benchmarks.look [--text FILE] [--tokens 512] [--bertviz FOLDER] [--rounds 5] [--keep]

The built-in model, and one of 12 x 12 heads with new weights, whose maps are nothing to look at but as large as any.
FOLDER is where `pip install --target FOLDER bertviz ipython` put BertViz, which no environment of ours holds; without
it only ours is measured. Its page cannot be timed beside ours: it fetches its scripts from hosts that it names, and
shows nothing without them. Browser times need Playwright and a Chromium; without them only sizes are told.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.race import keep, machine
from regard.inside import Attention, attention, opened
from regard.inside.sight.payload import payload_of
from regard.models import Bert, BertConfig
from regard.text import Tokenizer
from regard.view.bundle import page

LIMITS = {"built-in 8 x 6": 10.0, "12 x 12": 16.0}  # MB
HOSTS = re.compile(r"https?://([\w-]+(?:\.[\w-]+)+)")
README = Path(__file__).resolve().parents[1] / "README.md"
OTHER_HEAD = """async ([layer, head]) => {
  const before = performance.now();
  location.hash = `#attention?layer=${layer}&heads=${head}`;
  await new Promise((done) => addEventListener("hashchange", done, { once: true }));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - before;
}"""
FIRST_PAINT = """() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, default=README, help="what is looked at; the README by default")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--bertviz", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="write benchmarks/results/look.json")
    options = parser.parse_args()
    text = options.text.read_text(encoding="utf-8")
    built_in, tokenizer = opened("regard-bert")
    assert isinstance(tokenizer, Tokenizer)
    torch.manual_seed(0)
    large = Bert(BertConfig(vocabulary=tokenizer.size), heads=()).eval()
    figures: dict[str, Any] = {"tokens": options.tokens}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in (("built-in 8 x 6", built_in), ("12 x 12", large)):
            found = attention(model, tokenizer, text, max_tokens=options.tokens)
            ours = Path(folder) / "ours.html"
            figures[name] = {
                "limit MB": LIMITS[name],
                "Regard": _made(ours, _regard, found) | _seen(ours, rounds=options.rounds),
            }
            if options.bertviz is not None:
                sys.path.append(str(options.bertviz))
                figures[name]["BertViz"] = _made(Path(folder) / "theirs.html", _bertviz, found)
    print(f"{options.tokens} tokens, {machine()}")
    for name, rows in figures.items():
        if isinstance(rows, dict):
            for who, row in rows.items():
                if isinstance(row, dict):
                    print(f"{name:<16}{who:<20}" + "  ".join(f"{key} {value}" for key, value in row.items()))
    if options.keep:
        print(keep("look", figures))


def _made(path: Path, make: Callable[[Attention], str], found: Attention) -> dict[str, object]:
    begin = time.perf_counter()
    content = make(found)
    seconds = time.perf_counter() - begin
    path.write_text(content, encoding="utf-8")
    others = {*HOSTS.findall(" ".join(found.texts)), "www.w3.org"}
    return {
        "MB": round(path.stat().st_size / 1e6, 2),
        "seconds to make": round(seconds, 2),
        "hosts it names": sorted({*HOSTS.findall(content)} - others),
    }


def _regard(found: Attention) -> str:
    return page(payload_of("x", found))


def _bertviz(found: Attention) -> str:
    from bertviz import head_view

    one = found.maps[0]
    maps = [torch.from_numpy(layer)[None] for layer in one.weights]
    content: str = head_view(maps, list(one.rows.tokens), html_action="return").data
    return f"<!doctype html><html><body>{content}</body></html>"


def _seen(path: Path, *, rounds: int) -> dict[str, object]:
    """The first paint and the middle one of five switches between heads, best of some rounds; {} without a browser."""
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        browser_path = None
    if browser_path is None:
        return {}
    paints, switches, errors = [], [], set()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for _ in range(rounds):
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            tab.on("pageerror", lambda error: errors.add(str(error).splitlines()[0]))
            tab.goto(path.as_uri())
            tab.wait_for_selector("canvas, svg")
            paints.append(tab.evaluate(FIRST_PAINT))
            switches.append(statistics.median(tab.evaluate(OTHER_HEAD, [step, step % 6]) for step in range(1, 6)))
            tab.close()
        browser.close()
    return {"first paint ms": round(min(paints)), "other head ms": round(min(switches)), "errors": sorted(errors)}


if __name__ == "__main__":
    main()
