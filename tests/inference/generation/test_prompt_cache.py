"""A prompt that begins like the last text gives the same logits, and only its new tokens are read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.inference.generation.prompt_cache import PromptCache
from regard.inference.generation.sampling import Sampling, sample
from regard.nn import recording
from tests.inference.generation.models import family

PROMPT = [3, 1, 4, 1, 5]


def tokens_read(model: Any) -> list[int]:
    """The number of tokens that each later pass embeds."""
    lengths: list[int] = []
    model.embedding.register_forward_pre_hook(lambda module, inputs: lengths.append(inputs[0].shape[1]))
    return lengths


@torch.inference_mode()
@pytest.mark.parametrize("name", ["gpt", "llama"])
@pytest.mark.parametrize(
    ("second", "reused"),
    [
        ([*PROMPT, 9, 2, 6], 5),
        (PROMPT, 4),  # the last token is read again, for its logits
        ([3, 1, 4, 8], 3),
        ([7, 1, 4], 0),
        ([3], 0),
    ],
)
def test_logits_are_equal_and_only_new_tokens_are_read(name: str, second: list[int], reused: int) -> None:
    model, cache = family(name), PromptCache()
    cache.keep(model, PROMPT, cache.start(model, torch.tensor([PROMPT]))[1])
    expected, _ = model.start(torch.tensor([second]))
    lengths = tokens_read(model)
    found, state = cache.start(model, torch.tensor([second]))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert cache.reused == reused and lengths == [len(second) - reused]
    assert state.cache.length == state.mask.shape[1] == len(second)


@torch.inference_mode()
@pytest.mark.parametrize("name", ["gpt", "llama"])
@pytest.mark.parametrize("length", [1, 2, 4, 9])
def test_the_logits_of_a_prompt_are_those_of_one_pass_and_a_text_goes_on_from_them(
    name: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.inference.generation.prompt_cache.READ_TOKENS", 3)
    model, cache = family(name), PromptCache()
    ids = [3, 1, 4, 1, 5, 9, 2, 6, 5][:length]
    expected = model.logits(model(torch.tensor([ids]))[0])
    parts = list(cache.read(model, ids))
    torch.testing.assert_close(torch.cat(parts), expected, atol=1e-5, rtol=1e-5)
    assert max(map(len, parts)) <= 3
    lengths = tokens_read(model)
    found, _ = cache.start(model, torch.tensor([ids]))
    torch.testing.assert_close(found[0], expected[-1], atol=1e-5, rtol=1e-5)
    assert lengths == [1]  # the last token is read again, for its logits


@pytest.mark.parametrize("sampling", [None, Sampling()])
@pytest.mark.parametrize("assisted", [False, True])
def test_turns_of_a_conversation(sampling: Sampling | None, assisted: bool) -> None:
    """Each prompt is the last text and more; texts equal those without the cache."""
    model, cache, prompt = family("llama"), PromptCache(), list(PROMPT)
    settings: dict[str, Any] = {"sampling": sampling, "end": None, "max_new_tokens": 6, "seed": 1}
    for turn in range(3):
        ids = torch.tensor([prompt])
        expected = list(sample(model, ids, **settings))
        states: list[Any] = []

        def start(model: Any, ids: torch.Tensor, states: list[Any] = states) -> Any:
            logits, state = cache.start(model, ids)
            states.append(state)
            return logits, state

        assistant = family("gpt") if assisted else None
        found = list(sample(model, ids, **settings, assistant=assistant, start=start))
        assert found == expected
        text = [*prompt, *(token for (token,) in found if token is not None)]
        cache.keep(model, text[:-1], states[0])
        assert cache.reused == (0 if turn == 0 else len(prompt) - 3)  # the last generated token and two more
        prompt = [*text, 7, turn]


@torch.inference_mode()
def test_cache_is_not_used_for_other_models_recordings_or_large_texts() -> None:
    model, cache = family("llama"), PromptCache()
    ids = torch.tensor([PROMPT])

    def kept() -> bool:
        for _ in range(2):
            _, state = cache.start(model, ids)
            cache.keep(model, PROMPT, state)
        return cache.reused > 0

    assert kept()
    other = family("llama", seed=5)
    found, _ = cache.start(other, ids)
    assert cache.reused == 0
    assert torch.equal(found, other.start(ids)[0])
    with recording.record(model) as tape:
        assert not kept()
    assert all(call.query.shape[2] == len(PROMPT) for calls in tape.calls.values() for call in calls)
    cache.start(model, ids)
    cache.start(model, ids)  # the first text is not complete
    assert cache.reused == 0
    cache.max_bytes = 100
    assert not kept()
