"""The page of a search: whole, self-contained, and true to the trace."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
import torch

from regard.decode import Beam, Sampling, Trace, beam_search, sample
from regard.decode.trace import Document
from regard.view.search import search_page
from tests.decode.models import Chain

PROMPTS = torch.tensor([[1, 2], [3, 1]])
SVG = "{http://www.w3.org/2000/svg}"
NASTY = ["<end>", "</script><script>alert(1)</script>", "a&b", '"', "\n", "\x1b", " ", "é", "\ud800"]


@pytest.fixture(scope="module")
def beam() -> Document:
    trace = Trace(top=4, spell=lambda token: f"word{token}")
    beam_search(Chain(9, seed=1), PROMPTS, beam=Beam(width=3, nbest=2), end=0, max_tokens=6, trace=trace)
    return trace.document({"prompt": "x < y", "settings": {"width": 3, "length_penalty": 1.0}})


@pytest.fixture(scope="module")
def chance() -> Document:
    trace = Trace(top=9, spell=NASTY.__getitem__)
    sampling = Sampling(temperature=2.0, top_p=0.7)
    list(sample(Chain(9, seed=1), PROMPTS, sampling=sampling, end=0, max_tokens=5, trace=trace))
    return trace.document({"prompt": "\udcff"})


def trees(text: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(one) for one in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def data(text: str) -> object:
    found = re.search(r'<script type="application/json" id="trace">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_document_is_in_the_page(beam: Document, chance: Document) -> None:
    for document in (beam, chance):
        assert data(search_page(document)) == document


def test_nothing_is_fetched_or_run(beam: Document, chance: Document) -> None:
    for document in (beam, chance):
        text = search_page(document)
        text.encode("utf-8")  # a lone surrogate of a token or a prompt would fail here
        scripts = re.findall(r"<script[^>]*>", text)
        assert scripts == ['<script type="application/json" id="trace">']
        assert "default-src 'none'" in text
        assert not re.findall(r"(?:src|href)=", text)


def test_every_kept_node_has_a_box_and_the_best_path_is_thick(beam: Document) -> None:
    text = search_page(beam)
    for tree, row in zip(trees(text), beam["rows"], strict=True):
        candidates = [one for s in row["steps"] for c in s["choices"] for one in c["candidates"]]
        titles = [title.text or "" for title in tree.iter(f"{SVG}title")]
        for fate, words in (("kept", "kept as node"), ("ended", "ended a text as node")):
            count = sum(one["fate"] == fate for one in candidates)
            assert count > 0 and sum(words in title for title in titles) == count
        thick = [path for path in tree.iter(f"{SVG}path") if "stroke-width:3" in (path.get("style") or "")]
        best = row["results"][0]
        assert len(thick) == len(best["tokens"]) + best["finished"]
        died = [node for step in row["steps"] for node in step["died"]]
        labels = [label.text or "" for label in tree.iter(f"{SVG}text")]
        assert sum(label.endswith("†") for label in labels) == len(died) > 0


def test_what_was_cut_is_struck_through(chance: Document) -> None:
    text = search_page(chance)
    for tree, row in zip(trees(text), chance["rows"], strict=True):
        candidates = [one for s in row["steps"] for c in s["choices"] for one in c["candidates"]]
        struck = [one for one in tree.iter(f"{SVG}text") if "line-through" in (one.get("style") or "")]
        assert len(struck) == sum(one["fate"] == "cut" for one in candidates) > 0
        cut = row["steps"][0]["choices"][0]["cut"][0]
        assert f"top-p cut {cut['count']} tokens, {cut['share']:.2%} of the probability" in text


def test_texts_settings_and_steps_can_be_read(beam: Document) -> None:
    text = search_page(beam)
    assert "x &lt; y" in text and "length-penalty" in text
    for row in beam["rows"]:
        for result in row["results"]:
            assert result["text"] in text and f"{result['score']:.3f}" in text
    steps = sum(len(step["choices"]) for row in beam["rows"] for step in row["steps"])
    assert text.count("<details>") == steps


def test_tags_are_balanced(beam: Document, chance: Document) -> None:
    class Balance(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag != "meta":
                self.open.append(tag)

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            pass

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    for document in (beam, chance):
        parser = Balance()
        parser.feed(search_page(document))
        assert parser.open == []


def test_a_search_that_was_interrupted(beam: Document) -> None:
    """Without results nothing is thick, and the page is there all the same."""
    rows = [{**row, "results": []} for row in beam["rows"]]
    text = search_page({**beam, "rows": rows})  # type: ignore[typeddict-item]
    assert "stroke-width:3" not in text and len(trees(text)) == 2
    assert "this run" in search_page({**beam, "rows": []})
