"""An attention page of 512 tokens: its size, time to first paint, and time to switch heads, compared with BertViz.

    python -m benchmarks.look [--text FILE] [--tokens 512] [--bertviz FOLDER] [--scripts FOLDER] [--rounds 5] [--save]

Measured with the built-in model and with a randomly initialized model of 12 x 12 heads. The two FOLDERs hold packages
that are not in the environment; without them only Regard, or only BertViz's page size, is measured:

    pip install --target BERTVIZ bertviz ipython
    npm install --prefix SCRIPTS d3@5.7.0 jquery@2.2.4 requirejs@2.3.6

BertViz's page loads these three scripts from another host and shows nothing without them; here the browser gets them
from SCRIPTS (jquery 2.2.4 instead of 2.0.0, which npm does not have). Times start when Chromium, driven by Playwright,
opens the file: `first paint` of anything, `drawn` when the lines are visible, `other head` from the selection to the
second frame after it (median and maximum). Without Chromium only sizes are reported.
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
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import describe_machine, save_results
from regard.inference.load_model import load_model
from regard.interpret.attention.maps import AttentionRecord
from regard.interpret.attention.recording import record_attention
from regard.models import Bert, BertConfig
from regard.text import Tokenizer

LIMITS = {"built-in 8 x 6": 10.0, "12 x 12": 16.0}  # MB
HOSTS = re.compile(r"https?://([\w-]+(?:\.[\w-]+)+)")
README = Path(__file__).resolve().parents[1] / "README.md"
TIMEOUT = 120  # seconds to wait for a page to draw
SCRIPTS = {"require": "requirejs/require.js", "d3": "d3/dist/d3.min.js", "jquery": "jquery/dist/jquery.min.js"}
DRAWN = """async (selector) => {
  while (!document.querySelector(selector)) await new Promise((done) => setTimeout(done, 5));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now();
}"""
THEIR_OTHER_HEAD = """async (head) => {
  const boxes = [...document.querySelectorAll("#vis svg > g")].at(-1).querySelectorAll("rect");
  const before = performance.now();
  boxes[head].dispatchEvent(new MouseEvent("click", { bubbles: true }));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - before;
}"""
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
    parser.add_argument("--text", type=Path, default=README, help="input text; the README by default")
    parser.add_argument("--tokens", type=int, default=512, help="maximum number of tokens")
    parser.add_argument("--bertviz", type=Path, default=None, metavar="FOLDER", help="where BertViz is installed")
    parser.add_argument("--scripts", type=Path, default=None, metavar="FOLDER", help="where the npm packages are")
    parser.add_argument("--rounds", type=int, default=5, help="times to open each page")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/look.json")
    options = parser.parse_args()
    text = options.text.read_text(encoding="utf-8")
    built_in, tokenizer = load_model("regard-bert")
    assert isinstance(tokenizer, Tokenizer)
    torch.manual_seed(0)
    large = Bert(BertConfig(vocab_size=tokenizer.size), output_heads=()).eval()
    results: dict[str, Any] = {"tokens": options.tokens}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in (("built-in 8 x 6", built_in), ("12 x 12", large)):
            record = record_attention(model, tokenizer, text, max_tokens=options.tokens)
            ours = Path(folder) / "ours.html"
            results[name] = {
                "limit MB": LIMITS[name],
                "Regard": _write_page(ours, _regard_page, record)
                | _measure_in_browser(ours, _open_regard, rounds=options.rounds),
            }
            if options.bertviz is not None:
                sys.path.append(str(options.bertviz))
                theirs = Path(folder) / "theirs.html"
                results[name]["BertViz"] = _write_page(theirs, _bertviz_page, record)
                if options.scripts is not None:
                    results[name]["BertViz"] |= _measure_in_browser(
                        theirs, partial(_open_bertviz, options.scripts), rounds=1
                    )
    print(f"{options.tokens} tokens, {describe_machine()}")
    for name, rows in results.items():
        if isinstance(rows, dict):
            for tool, row in rows.items():
                if isinstance(row, dict):
                    print(f"{name:<16}{tool:<20}" + "  ".join(f"{key} {value}" for key, value in row.items()))
    if options.save:
        print(save_results("look", results))


def _write_page(path: Path, render: Callable[[AttentionRecord], str], record: AttentionRecord) -> dict[str, object]:
    begin = time.perf_counter()
    content = render(record)
    seconds = time.perf_counter() - begin
    path.write_text(content, encoding="utf-8")
    expected = {*HOSTS.findall(" ".join(record.texts)), "www.w3.org"}
    return {
        "MB": round(path.stat().st_size / 1e6, 2),
        "seconds to make": round(seconds, 2),
        "hosts it names": sorted({*HOSTS.findall(content)} - expected),
    }


def _regard_page(record: AttentionRecord) -> str:
    return record.to_html()


def _bertviz_page(record: AttentionRecord) -> str:
    from bertviz import head_view

    attention = record.maps[0]
    maps = [torch.from_numpy(layer)[None] for layer in attention.weights]
    content: str = head_view(maps, list(attention.rows.tokens), html_action="return").data
    return f"<!doctype html><html><body>{content}</body></html>"


def _measure_in_browser(path: Path, open_page: Callable[[Any, Path], list[float]], *, rounds: int) -> dict[str, object]:
    """Measurements of a page in a browser; {} without one."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        executable = None
    if executable is None:
        return {}
    paints, drawn, switches, errors = [], [], list[float](), set[str]()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for _ in range(rounds):
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            tab.set_default_timeout(1000 * TIMEOUT)
            tab.on("pageerror", lambda error: errors.add(str(error).splitlines()[0]))
            try:
                first_drawn, *head_switches = open_page(tab, path)
            except Error as error:
                browser.close()
                return {"drawn": f"not in {TIMEOUT} s: {str(error).splitlines()[0]}", "errors": sorted(errors)}
            drawn.append(first_drawn)
            switches += head_switches
            paints.append(tab.evaluate(FIRST_PAINT))
            tab.close()
        browser.close()
    return {
        "first paint ms": round(min(paints)),
        "drawn ms": round(min(drawn)),
        "other head ms": round(statistics.median(switches)),
        "slowest ms": round(max(switches)),
        "errors": sorted(errors),
    }


def _open_regard(tab: Any, path: Path) -> list[float]:
    """Time until the lines are drawn, and for each of five switches to another head."""
    tab.goto(path.as_uri())
    return [tab.evaluate(DRAWN, "canvas"), *(tab.evaluate(OTHER_HEAD, [step + 1, step % 6]) for step in range(1, 6))]


def _open_bertviz(scripts: Path, tab: Any, path: Path) -> list[float]:
    """Like `_open_regard` for BertViz, which switches heads within one layer."""
    for name, file in SCRIPTS.items():
        tab.route(re.compile(rf"https://[^/]+/.*/{name}(\.min)?(\.js)?$"), _fulfill(scripts / "node_modules" / file))
    tab.goto(path.as_uri(), wait_until="commit")
    tab.wait_for_selector("#vis line", state="attached")
    return [tab.evaluate(DRAWN, "#vis line"), *(tab.evaluate(THEIR_OTHER_HEAD, head) for head in range(1, 6))]


def _fulfill(path: Path) -> Callable[[Any], None]:
    return lambda route: route.fulfill(path=path)


if __name__ == "__main__":
    main()
