"""Decoding in bursts with a static cache equals single steps, for any prompt, span and sampling method."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from regard.engine import graph_decoder
from regard.engine.graph_decoder import cuda_graph_mode
from regard.errors import InputError, RegardError
from regard.inference.generation.sampling import Sampling, sample
from regard.nn import recording
from regard.nn.masks import Padded
from tests.inference.generation.models import family

PROMPTS = [
    (torch.tensor([[3, 1, 4], [1, 5, 9], [2, 6, 5]]), None),
    (torch.tensor([[3, 1, 4], [1, 5, 0], [2, 0, 0]]), Padded.from_lengths([3, 2, 1])),
]


@pytest.fixture(autouse=True)
def short_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """With short spans, thirty tokens require three spans and several bursts."""
    monkeypatch.setattr(graph_decoder, "MIN_SPAN", 8)
    monkeypatch.setattr(graph_decoder, "BURST", 5)


def greedy(model: Any, ids: torch.Tensor, layout: Padded | None, *, end: int | None, max_new_tokens: int) -> Any:
    return list(sample(model, ids, layout, sampling=None, end=end, max_new_tokens=max_new_tokens))


def decoder_of(model: Any) -> Any:
    return graph_decoder._decoders[model][1]


@pytest.mark.parametrize("name", ["gpt", "gptj", "llama"])
@pytest.mark.parametrize(("ids", "layout"), PROMPTS)
@pytest.mark.parametrize("end", [None, 7, 11])
def test_greedy_search_gives_the_same_tokens(
    name: str, ids: torch.Tensor, layout: Padded | None, end: int | None
) -> None:
    model = family(name)
    expected = greedy(model, ids, layout, end=end, max_new_tokens=30)
    with cuda_graph_mode("plain"):
        found = greedy(model, ids, layout, end=end, max_new_tokens=30)
    assert found == expected
    if end is None:
        assert sorted(decoder_of(model).steps) == [8, 16, 32]


@pytest.mark.parametrize("name", ["gpt", "gptj", "llama"])
@pytest.mark.parametrize("sampling", [None, Sampling(), Sampling(temperature=0.7, top_k=9, top_p=0.9, min_p=0.01)])
@pytest.mark.parametrize(("ids", "layout"), PROMPTS)
def test_sampling_gives_the_same_tokens(
    name: str, sampling: Sampling | None, ids: torch.Tensor, layout: Padded | None
) -> None:
    model = family(name)
    settings: dict[str, Any] = {"sampling": sampling, "end": 5, "max_new_tokens": 30, "seed": 3, "rows": [4, 0, 9]}
    expected = list(sample(model, ids, layout, **settings))
    with cuda_graph_mode("plain"):
        found = list(sample(model, ids, layout, **settings))
        again = list(sample(model, ids, layout, **settings))
    assert found == again == expected
    assert decoder_of(model).choose


def test_caller_can_finish_rows() -> None:
    model, (ids, layout) = family("gpt"), PROMPTS[0]
    over: set[int] = set()
    found = []
    with cuda_graph_mode("plain"):
        for step in sample(model, ids, layout, sampling=None, end=None, max_new_tokens=30, finished=over):
            found.append(step)
            if len(found) == 7:
                over |= {0, 2}
            if len(found) == 9:
                over.add(1)
    assert len(found) == 9
    assert all(word is not None for step in found[:7] for word in step)
    assert [[word is None for word in step] for step in found[7:]] == [[True, False, True]] * 2


def test_decoders_are_reused_until_weights_are_moved() -> None:
    model, (ids, layout) = family("gpt"), PROMPTS[0]
    with cuda_graph_mode("plain"):
        greedy(model, ids, layout, end=None, max_new_tokens=9)
        first = decoder_of(model)
        with torch.no_grad():
            model.embedding.tokens.weight.mul_(-1)  # in-place: the next call must use the new weights
        found = greedy(model, ids, layout, end=None, max_new_tokens=9)
        assert decoder_of(model) is first
        model.embedding.tokens.weight = torch.nn.Parameter(model.embedding.tokens.weight.detach().clone())
        greedy(model, ids, layout, end=None, max_new_tokens=9)
        assert decoder_of(model) is not first
    assert found == greedy(model, ids, layout, end=None, max_new_tokens=9)


def test_decoders_are_freed_with_their_model() -> None:
    model, (ids, layout) = family("gpt"), PROMPTS[0]
    with cuda_graph_mode("plain"):
        greedy(model, ids, layout, end=None, max_new_tokens=9)
    before = len(graph_decoder._decoders)
    del model
    gc.collect()
    assert len(graph_decoder._decoders) < before


def test_single_steps_are_used_while_recording_or_without_benefit() -> None:
    model, (ids, layout) = family("gpt"), PROMPTS[0]
    greedy(model, ids, layout, end=None, max_new_tokens=9)  # on the CPU
    with cuda_graph_mode("off"):
        greedy(model, ids, layout, end=None, max_new_tokens=9)
    with cuda_graph_mode("plain"), recording.record(model) as tape:
        greedy(model, ids, layout, end=None, max_new_tokens=4)
    assert model not in graph_decoder._decoders
    assert len(next(iter(tape.calls.values()))) == 4


def test_nan_is_rejected() -> None:
    model, (ids, layout) = family("gpt"), PROMPTS[0]
    with torch.no_grad():
        model.embedding.positions.weight[6] = torch.nan
    with cuda_graph_mode("plain"):
        with pytest.raises(RegardError, match="NaN"):
            greedy(model, ids, layout, end=None, max_new_tokens=9)
        with pytest.raises(RegardError, match="NaN"):
            list(sample(model, ids, layout, sampling=Sampling(), end=None, max_new_tokens=9))


def test_unknown_mode_is_rejected() -> None:
    with pytest.raises(InputError, match="mode"), cuda_graph_mode("fast"):  # type: ignore[arg-type]
        pass


def test_interleaved_generations_are_independent() -> None:
    model, (ids, layout) = family("gpt"), PROMPTS[0]
    settings: dict[str, Any] = {"sampling": Sampling(), "end": None, "max_new_tokens": 30}
    expected = [list(sample(model, ids, layout, **settings, seed=seed)) for seed in (1, 2)]
    with cuda_graph_mode("plain"):
        both = zip(*(sample(model, ids, layout, **settings, seed=seed) for seed in (1, 2)), strict=True)
        found = [list(one) for one in zip(*both, strict=True)]
    assert found == expected


@pytest.mark.parametrize(
    "mode",
    ["plain", pytest.param("graphs", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))],
)
@pytest.mark.parametrize("name", ["gpt", "gptj", "llama"])
def test_threads_generate_independently(name: str, mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, each thread captures its own steps."""
    monkeypatch.setattr(graph_decoder, "MIN_STEPS", 20)
    device = torch.device("cpu" if mode == "plain" else "cuda")
    model, ids = family(name).to(device), PROMPTS[0][0].to(device)

    def generate_tokens(seed: int, mode: Any) -> list[list[int | None]]:
        with cuda_graph_mode(mode):
            return list(sample(model, ids, sampling=Sampling(), end=None, max_new_tokens=20 + seed, seed=seed))

    seeds = range(4)
    expected = [generate_tokens(seed, "off") for seed in seeds]
    with ThreadPoolExecutor(len(seeds)) as threads:
        found = list(threads.map(generate_tokens, seeds, [mode] * len(seeds)))
    assert found == expected
