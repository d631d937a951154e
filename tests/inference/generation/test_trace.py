"""The trace of a search: it agrees with the search and shows dropped beams and filtered tokens."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
import torch

from regard.inference.generation.beam_search import Beam, beam_search
from regard.inference.generation.sampling import Sampling, sample
from regard.inference.generation.trace import Trace, TraceCandidate, TraceDocument, TraceRow
from tests.inference.generation.models import FAMILIES, VOCABULARY, Chain, family

END = 0
PROMPTS = torch.tensor([[1, 2], [3, 1]])


def nodes_of(row: TraceRow) -> dict[int, tuple[int, TraceCandidate]]:
    """Each node except the root, with its parent."""
    return {
        one["child"]: (choice["node"], one)
        for step in row["steps"]
        for choice in step["choices"]
        for one in choice["candidates"]
        if "child" in one
    }


def path(row: TraceRow, node: int) -> list[int]:
    nodes = nodes_of(row)
    tokens: list[int] = []
    while node:
        node, one = nodes[node]
        tokens.append(one["token"])
    return tokens[::-1]


def trace_beam_search(model: object, beam: Beam, *, max_tokens: int, top: int = 3) -> TraceDocument:
    trace = Trace(top=top)
    beam_search(model, PROMPTS, beam=beam, end=END, max_new_tokens=max_tokens, trace=trace)  # type: ignore[arg-type]
    document = trace.document({"prompt": "x"})
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    return document


@pytest.mark.parametrize(
    "beam", [Beam(num_beams=3, num_return_sequences=3), Beam(num_beams=4, num_return_sequences=2, early_stopping=True)]
)
def test_a_trace_records_the_search_without_changing_it(beam: Beam) -> None:
    for seed in range(6):
        model = Chain(9, seed=seed)
        expected = beam_search(model, PROMPTS, beam=beam, end=END, max_new_tokens=6)
        document = trace_beam_search(model, beam, max_tokens=6)
        assert (document["method"], document["about"], document["top"]) == ("beam", {"prompt": "x"}, 3)
        for row, several in zip(document["rows"], expected, strict=True):
            assert [tuple(one["tokens"]) for one in row["results"]] == [one.ids for one in several]
            assert [one["score"] for one in row["results"]] == [one.score for one in several]
            for result, one in zip(row["results"], several, strict=True):
                assert path(row, result["node"]) == [*one.ids, *([END] if one.finished else [])]
                assert result["finished"] == one.finished
                assert nodes_of(row)[result["node"]][1]["fate"] == "ended"
                assert nodes_of(row)[result["node"]][1]["total"] == pytest.approx(one.log_probability, abs=1e-5)


def test_candidates_are_the_likeliest_tokens_with_the_scores_of_the_model() -> None:
    model = Chain(9, seed=1)
    row = trace_beam_search(model, Beam(num_beams=3), max_tokens=5, top=4)["rows"][0]
    for step in row["steps"]:
        for choice in step["choices"]:
            generated = [1, 2, *path(row, choice["node"])]
            scores = model.table[generated[-2], generated[-1]].log_softmax(-1)
            listed = [one["token"] for one in choice["candidates"]]
            assert listed[:4] == scores.topk(4).indices.tolist()
            assert all("child" in one for one in choice["candidates"][4:])
            for one in choice["candidates"]:
                assert one["log_probability"] == pytest.approx(float(scores[one["token"]]), abs=1e-6)
                total = model.log_probability([1, 2], [*generated[2:], one["token"]])
                assert one["total"] == pytest.approx(total, abs=1e-5)


def test_a_beam_continues_until_it_is_dropped() -> None:
    """The beams of a step are those kept in the previous step; beams without a child do not appear again."""
    died = 0
    for seed in range(6):
        for row in trace_beam_search(Chain(9, seed=seed), Beam(num_beams=4, num_return_sequences=4), max_tokens=7)[
            "rows"
        ]:
            kept = [
                [n for n, (_, one) in nodes_of(row).items() if one["fate"] == "kept" and len(path(row, n)) == t]
                for t in range(1, len(row["steps"]) + 1)
            ]
            for before, step in zip([[0], *kept], row["steps"], strict=False):
                assert sorted(choice["node"] for choice in step["choices"]) == sorted(before)
                parents = {parent for node, (parent, _) in nodes_of(row).items() if parent in before}
                assert set(step["died"]) == set(before) - parents
                died += len(step["died"])
            assert sorted(row["left"]) == sorted(kept[-1])
    assert died > 0


def test_a_dropped_beam_by_hand() -> None:
    """Two first tokens are likely; one has no likely continuation, the other has two."""
    model = Chain(4)
    model.table[:] = 0.0
    model.table[1, 2] = torch.tensor([0.02, 0.5, 0.46, 0.02]).log()
    model.table[2, 1] = torch.tensor([0.25, 0.25, 0.25, 0.25]).log()
    model.table[2, 2] = torch.tensor([0.01, 0.49, 0.01, 0.49]).log()
    row = trace_beam_search(model, Beam(num_beams=2), max_tokens=3)["rows"][0]
    first, second = row["steps"][0], row["steps"][1]
    assert [(one["token"], one["fate"]) for one in first["choices"][0]["candidates"]] == [
        (1, "kept"),
        (2, "kept"),
        (0, "passed"),
    ]
    assert first["died"] == []
    assert second["died"] == [1]
    assert path(row, 1) == [1]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_can_be_traced(name: str) -> None:
    model, ids, trace = family(name), torch.randint(1, VOCABULARY, (2, 4)), Trace()
    expected = beam_search(model, ids, beam=Beam(num_beams=3), end=END, max_new_tokens=4, trace=trace)
    found = [tuple(row["results"][0]["tokens"]) for row in trace.document()["rows"]]
    assert found == [one[0].ids for one in expected]


def test_a_sample_with_the_tokens_each_filter_removed() -> None:
    model = Chain(6)
    model.table[:] = torch.tensor([0.02, 0.4, 0.3, 0.2, 0.05, 0.03]).log()
    trace = Trace(top=6, token_text=lambda token: "-abcde"[token])
    sampling = Sampling(top_k=4, top_p=0.9)
    (token,), *_ = sample(
        model, PROMPTS[:1], sampling=sampling, end=END, max_new_tokens=1, seed=1, rows=[7], trace=trace
    )
    document = trace.document()
    (row,) = document["rows"]
    (choice,) = row["steps"][0]["choices"]
    assert (document["method"], row["row"]) == ("sample", 7)
    fates = {one["text"]: (one["fate"], one.get("by")) for one in choice["candidates"]}
    assert [one["text"] for one in choice["candidates"]] == list("abcde-")
    # The four likeliest tokens hold 0.95; the first three are 0.9474 of that, the first two 0.7368.
    assert fates["-"] == fates["e"] == ("cut", "top_k")
    assert fates["d"] == ("cut", "top_p")
    assert token in (1, 2, 3) and fates["-abcde"[token]] == ("kept", None)
    assert sum(fate == "passed" for fate, _ in fates.values()) == 2
    assert [(cut["by"], cut["count"]) for cut in choice["cut"]] == [("top_k", 2), ("top_p", 1)]
    assert [cut["share"] for cut in choice["cut"]] == pytest.approx([0.05, 0.05], abs=1e-6)
    probabilities = {one["text"]: one.get("chance") for one in choice["candidates"]}
    assert probabilities == pytest.approx({"a": 4 / 9, "b": 3 / 9, "c": 2 / 9, "d": 0, "e": 0, "-": 0}, abs=1e-6)
    assert choice["candidates"][0]["log_probability"] == pytest.approx(math.log(0.4), abs=1e-6)


def test_a_sample_is_one_path() -> None:
    model, trace = Chain(9, seed=2), Trace(top=2)
    steps = list(
        sample(model, PROMPTS, sampling=Sampling(temperature=3.0), end=END, max_new_tokens=8, seed=3, trace=trace)
    )
    for number, row in enumerate(trace.document()["rows"]):
        generated = [tokens[number] for tokens in steps if tokens[number] is not None]
        (result,) = row["results"]
        assert path(row, result["node"]) == generated
        assert result["tokens"] == [token for token in generated if token != END]
        assert result["finished"] == (END in generated)
        words = [token for token in generated if token is not None]
        total = model.log_probability(PROMPTS[number].tolist(), words)
        assert result["log_probability"] == pytest.approx(total, abs=1e-5)
        assert result["score"] == pytest.approx(total / len(generated), abs=1e-5)
        nodes = [choice["node"] for step in row["steps"] for choice in step["choices"]]
        assert all(before < after for before, after in pairwise(nodes))
        assert row["left"] == []


def test_impossible_tokens_have_null_scores() -> None:
    model = Chain(4)
    model.table[..., 3] = -math.inf
    document = trace_beam_search(model, Beam(num_beams=2), max_tokens=2, top=4)
    found = [one for one in document["rows"][0]["steps"][0]["choices"][0]["candidates"] if one["token"] == 3]
    assert [(one["log_probability"], one["total"]) for one in found] == [(None, None)]


def test_filtered_tokens_are_listed_beyond_the_top() -> None:
    model, trace = Chain(9, seed=2), Trace(top=1)
    list(sample(model, PROMPTS[:1], sampling=Sampling(top_k=2), end=END, max_new_tokens=1, trace=trace))
    candidates = trace.document()["rows"][0]["steps"][0]["choices"][0]["candidates"]
    order = model.table[1, 2].topk(5).indices.tolist()
    assert [one["token"] for one in candidates][:1] == order[:1]
    assert [one["token"] for one in candidates if one["fate"] == "cut"] == order[2:]
