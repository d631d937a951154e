"""A search as a page: the tree of what was said and what was not, and a table for every step.

Knows the document of a trace. Knows nothing of models, tensors or files. The page needs no script; the document itself
lies in it as JSON, under the name "trace".
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regard.decode.trace import Candidate, Document, Row
from regard.view.page import UNWRITABLE, Html, page, paragraph, section, table

__all__ = ["search_page"]

COLUMN, LINE, BOX, MARGIN = 176, 30, 22, 26  # the drawing's measures, in pixels
LETTERS = 12  # of a token that fit into its box
SHOWN = 12  # candidates in a column, not counting what was taken

LEGENDS = {
    "beam": "One column for each step, the likeliest beginnings on top. A filled box was kept, one with a double frame "
    "ended a text, a pale one was passed over. A dagger marks a beginning of which nothing was kept in the next step. "
    "The thick line is the best text. Percentages are the model's probability of the token; point at a box for more.",
    "sample": "One column for each token, the likeliest candidates on top. The filled box was chosen, pale ones could "
    "have been, and those struck through were cut by a filter. Percentages are the model's own probability of the "
    "token; point at a box for its chance after the filters.",
}
SPACES = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"})


@dataclass(frozen=True)
class _Box:
    """A candidate in its place in the drawing."""

    one: Candidate
    parent: int
    x: float
    y: float


def search_page(document: Document) -> Html:
    """The whole page: for each row its texts, the tree and the steps."""
    about = document["about"]
    known = [row for name, value in about.items() for row in _told(name, value)]
    parts = [paragraph(LEGENDS[document["method"]])]
    if known:
        parts.append(table(("this run", ""), known))
    several = len(document["rows"]) > 1
    for row in document["rows"]:
        parts.append(section(f"Text {row['row'] + 1}" if several else "Tree", _results(row), _tree(row)))
        parts.append(_steps(row, sampled=document["method"] == "sample"))
    parts.append(_data(document))
    title = "A beam search, step by step" if document["method"] == "beam" else "Sampling, token by token"
    return page(title, parts)


def _results(row: Row) -> Html:
    rows = [
        (
            result["text"],
            _decimal(result["score"]),
            _decimal(result["log_probability"]),
            "yes" if result["finished"] else "no",
        )
        for result in row["results"]
    ]
    return table(("text", "score", "log-probability", "finished"), rows)


def _tree(row: Row) -> Html:
    boxes = [list(_column(row, number)) for number in range(len(row["steps"]))]
    places = {0: (MARGIN + COLUMN - 40.0, MARGIN + BOX / 2)}
    for box in (box for column in boxes for box in column):
        if "child" in box.one:
            places[box.one["child"]] = (box.x + COLUMN - 40, box.y + BOX / 2)
    best = _best_path(row)
    died = {node: step["step"] for step in row["steps"] for node in step["died"]}
    lines = [_line(box, places, best) for column in boxes for box in column]
    drawn = [_box(box, best, died) for column in boxes for box in column]
    first = f'<text x="{MARGIN}" y="{MARGIN + 16}" class="quiet">prompt</text>'
    heads = [
        f'<text class="quiet" x="{MARGIN + COLUMN * (number + 1)}" y="16">{number + 1}</text>'
        for number in range(len(boxes))
    ]
    wide = MARGIN + COLUMN * (len(boxes) + 1)
    high = MARGIN + LINE * max((len(column) for column in boxes), default=1) + 8
    return Html(
        f'<div class="wide"><svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="the tree of the search" '
        f'style="max-width:none" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}">\n'
        + "\n".join([first, *heads, *lines, *drawn])
        + "\n</svg></div>"
    )


def _column(row: Row, number: int) -> Iterator[_Box]:
    """The candidates of a step, best first: all that were taken and the best of the others."""
    every = [(one, choice["node"]) for choice in row["steps"][number]["choices"] for one in choice["candidates"]]
    every.sort(key=lambda entry: -_or_least(entry[0]["total"]))
    others = [entry for entry in every if "child" not in entry[0]][:SHOWN]
    shown = [entry for entry in every if "child" in entry[0] or entry in others]
    for line, (one, parent) in enumerate(shown):
        yield _Box(one, parent, MARGIN + COLUMN * (number + 1), MARGIN + LINE * line)


def _best_path(row: Row) -> set[int]:
    """The nodes of the best text."""
    parents = {
        one["child"]: choice["node"]
        for step in row["steps"]
        for choice in step["choices"]
        for one in choice["candidates"]
        if "child" in one
    }
    found: set[int] = set()
    node = row["results"][0]["node"] if row["results"] else 0
    while node:
        found.add(node)
        node = parents[node]
    return found


def _line(box: _Box, places: dict[int, tuple[float, float]], best: set[int]) -> str:
    x, y = places[box.parent]
    end, middle = box.x, box.y + BOX / 2
    is_taken = "child" in box.one
    thick = 3 if box.one.get("child") in best else 1.2 if is_taken else 0.6
    dashes = "" if is_taken else ";stroke-dasharray:2 3;opacity:.5"
    return (
        f'<path d="M{x:g} {y:g} C{x + 18:g} {y:g} {end - 18:g} {middle:g} {end:g} {middle:g}" '
        f'style="fill:none;stroke:var(--quiet);stroke-width:{thick}{dashes}"/>'
    )


def _box(box: _Box, best: set[int], died: dict[int, int]) -> str:
    one, node = box.one, box.one.get("child")
    text = _visible(one["text"])
    short = text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"
    wide = COLUMN - 40
    opacity = 0.0 if node is None else 0.3 if node in best else 0.14
    frame = "var(--ink)" if node is not None else "var(--rule)"
    inner = (
        f'<rect x="{box.x + 2.5:g}" y="{box.y + 2.5:g}" width="{wide - 5}" height="{BOX - 5}" '
        'style="fill:none;stroke:var(--ink)"/>'
        if one["fate"] == "ended"
        else ""
    )
    look = "text-decoration:line-through;opacity:.55" if one["fate"] == "cut" else "opacity:.6" if node is None else ""
    dagger = " †" if node in died else ""
    share = _percent(one["log_probability"])
    return (
        f"<g><title>{_escaped(_tip(one, died))}</title>"
        f'<rect x="{box.x:g}" y="{box.y:g}" width="{wide}" height="{BOX}" '
        f'style="fill:var(--ink);fill-opacity:{opacity};stroke:{frame}"/>{inner}'
        f'<text x="{box.x + 6:g}" y="{box.y + 16:g}" style="font-size:12px;{look}">{_escaped(short)}{dagger}</text>'
        f'<text x="{box.x + wide - 6:g}" y="{box.y + 16:g}" text-anchor="end" class="quiet" '
        f'style="font-size:11px">{share}</text></g>'
    )


def _tip(one: Candidate, died: dict[int, int]) -> str:
    lines = [f"{one['text']!r}, token {one['token']}: {_fate(one)}"]
    lines.append(f"log-probability {_decimal(one['log_probability'])}, in all {_decimal(one['total'])}")
    if "chance" in one:
        lines.append(f"chance after the filters {one['chance']:.2%}")
    if one.get("child") in died:
        lines.append(f"nothing behind it was kept in step {died[one['child']]}")
    return "\n".join(lines)


def _steps(row: Row, *, sampled: bool) -> Html:
    """A table for each step, closed until it is opened."""
    found = []
    for step in row["steps"]:
        for choice in step["choices"]:
            name = "behind the prompt" if choice["node"] == 0 else f"behind node {choice['node']}"
            dead = ", of which nothing was kept" if choice["node"] in step["died"] else ""
            cuts = "".join(
                f"; {cut['by'].replace('_', '-')} cut {cut['count']:,} tokens, {cut['share']:.2%} of the probability"
                for cut in choice["cut"]
            )
            heading = _escaped(f"Step {step['step']}, {name}{dead}{cuts}")
            inside = _candidates(choice["candidates"], sampled=sampled)
            found.append(f"<details><summary>{heading}</summary>{inside}</details>")
    return Html("<section>\n<h2>Steps</h2>\n" + "\n".join(found) + "\n</section>")


def _candidates(candidates: Sequence[Candidate], *, sampled: bool) -> Html:
    rows = []
    for one in candidates:
        third = f"{one.get('chance', 0.0):.3%}" if sampled else _decimal(one["total"])
        rows.append((_visible(one["text"]), _percent(one["log_probability"], 3), third, _fate(one)))
    return table(("token", "probability", "chance" if sampled else "log-probability in all", "fate"), rows)


def _data(document: Document) -> Html:
    """The document for programs. ASCII alone and no `<`: nothing in a text can end the element."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="trace">{text}</script>')


def _fate(one: Candidate) -> str:
    words = {"kept": "kept", "ended": "ended a text", "cut": "cut", "passed": "passed over"}[one["fate"]]
    node = f" as node {one['child']}" if "child" in one else ""
    return f"{words} by {one['by'].replace('_', '-')}" if "by" in one else f"{words}{node}"


def _percent(log_probability: float | None, digits: int = 1) -> str:
    return f"{0.0 if log_probability is None else math.exp(log_probability):.{digits}%}"


def _decimal(value: float | None) -> str:
    return "-∞" if value is None else f"{value:.3f}"


def _or_least(value: float | None) -> float:
    return -math.inf if value is None else value


def _visible(text: str) -> str:
    """White space as signs, for in a box it would not be seen."""
    return text.translate(SPACES)


def _told(name: str, value: object) -> list[tuple[str, str]]:
    """What the caller knows, in rows of a table; a group of settings gets a row for each."""
    if isinstance(value, dict):
        return [(str(inner).replace("_", "-"), _written(one)) for inner, one in value.items()]
    return [(name, _written(value))]


def _written(value: object) -> str:
    return value if isinstance(value, str) else "none" if value is None else json.dumps(value)


def _escaped(text: str) -> str:
    return html.escape(UNWRITABLE.sub("\ufffd", text))
