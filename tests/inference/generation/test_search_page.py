"""The page of a search contains the trace and the lines that reproduce it."""

from __future__ import annotations

import json

import pytest
import torch

from regard.inference.generation.beam_search import Beam, beam_search
from regard.inference.generation.sampling import Sampling, sample
from regard.inference.generation.trace import Trace, TraceDocument, search_page
from tests.inference.generation.models import Chain
from tests.render.page_data import payload_of

PROMPTS = torch.tensor([[1, 2], [3, 1]])
NASTY = ["<end>", "</script><script>alert(1)</script>", "a&b", '"', "\n", "\x1b", " ", "é", "\ud800"]


@pytest.fixture(scope="module")
def beam() -> TraceDocument:
    trace = Trace(top=4, token_text=lambda token: f"word{token}")
    beam_search(
        Chain(9, seed=1), PROMPTS, beam=Beam(num_beams=3, num_return_sequences=2), end=0, max_new_tokens=6, trace=trace
    )
    return trace.document({"prompt": "x < y", "settings": {"num_beams": 3, "length_penalty": 1.0}})


@pytest.fixture(scope="module")
def sampled() -> TraceDocument:
    trace = Trace(top=9, token_text=NASTY.__getitem__)
    sampling = Sampling(temperature=2.0, top_p=0.7)
    list(sample(Chain(9, seed=1), PROMPTS, sampling=sampling, end=0, max_new_tokens=5, trace=trace))
    return trace.document({"prompt": "\udcff"})


@pytest.mark.usefixtures("page_built")
def test_the_document_is_in_the_page(beam: TraceDocument, sampled: TraceDocument) -> None:
    for document in (beam, sampled):
        text = search_page(document, cli="regard generate x", python="import regard")
        text.encode("utf-8")  # a lone surrogate in a token or a prompt would fail here
        shown = payload_of(text)
        assert (
            shown["trace"] == json.loads(json.dumps(document))
            and shown["view"] == "decoding"
            and shown["cli"] == "regard generate x"
        )
