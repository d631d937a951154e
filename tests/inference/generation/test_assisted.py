"""Speculative decoding gives the tokens of the model alone, in fewer passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.errors import InputError
from regard.inference.generation import assisted
from regard.inference.generation.assisted import check_assistant
from regard.inference.generation.sampling import Sampling, sample
from tests.inference.generation.models import family

PROMPT = torch.tensor([[3, 1, 4, 1, 5]])
SAMPLINGS = [
    None,
    Sampling(),
    Sampling(temperature=0.7, top_k=9, top_p=0.9, min_p=0.01),
    Sampling(temperature=0.0, repetition_penalty=1.3),
]


def generated(model: Any, *, assistant: Any = None, sampling: Sampling | None = None, **options: Any) -> list[int]:
    settings: dict[str, Any] = {"end": None, "max_new_tokens": 30, "seed": 2, "prompt_ids": PROMPT.tolist(), **options}
    steps = sample(model, PROMPT, sampling=sampling, assistant=assistant, **settings)
    return [token for (token,) in steps if token is not None]


def perturbed(name: str, size: float) -> Any:
    """A model whose logits resemble those of `family(name)`."""
    model, generator = family(name), torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))
    return model


def count_passes(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of tokens of each pass over several tokens."""
    lengths, extend = [], model.extend

    def counted(tokens: torch.Tensor, state: Any) -> torch.Tensor:
        lengths.append(tokens.shape[1])
        result: torch.Tensor = extend(tokens, state)
        return result

    monkeypatch.setattr(model, "extend", counted)
    return lengths


@pytest.mark.parametrize("name", ["gpt", "llama"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("size", [0.0, 0.05, 1.0])
def test_tokens_are_those_of_the_model_alone(name: str, sampling: Sampling | None, size: float) -> None:
    model = family(name)
    expected = generated(model, sampling=sampling)
    assert len(expected) == 30 and len(set(expected)) > 3, "the tokens must differ"
    assert generated(model, assistant=perturbed(name, size), sampling=sampling) == expected
    assert generated(model, assistant=family("gpt" if name == "llama" else "llama"), sampling=sampling) == expected


def test_accepted_drafts_save_passes_and_wrong_ones_shorten_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = family("llama")
    lengths = count_passes(model, monkeypatch)
    generated(model, assistant=family("llama"))
    assert lengths == [6, 8, 8, 7], "29 steps in four passes, with drafts of 5 and 7 tokens that are all accepted"
    lengths.clear()
    opposite = family("llama")
    with torch.no_grad():
        opposite.output.weight.neg_()
    generated(model, assistant=opposite)
    assert lengths[:6] == [6, 8, 7, 6, 5, 4] and sum(lengths) < 29 * 3


def test_end_token_and_context_of_the_assistant() -> None:
    model = family("llama")
    tokens = generated(model)
    end = next(token for i, token in enumerate(tokens) if i > 7 and token not in tokens[:i])
    assert generated(model, assistant=family("llama"), end=end) == tokens[: tokens.index(end) + 1]
    for context in (3, 5, 6, 12):  # the prompt has five tokens
        short = family("gpt")
        short.config = short.config.__class__(**{**vars(short.config), "max_position_embeddings": context})
        short.embedding.positions.weight = torch.nn.Parameter(short.embedding.positions.weight[:context].clone())
        short.embedding.positions.num_embeddings = short.embedding.positions.count = context
        assert generated(model, assistant=short) == tokens


def test_draft_lengths_stay_within_packed_sizes() -> None:
    assert assisted.FIRST_DRAFT <= assisted.MAX_DRAFT == 8 - 1


class _Vocabulary:
    def __init__(self, *tokens: str) -> None:
        self.vocabulary = {token: number for number, token in enumerate(tokens)}


def test_unsuitable_assistants_are_rejected() -> None:
    model, same = family("llama"), _Vocabulary("a", "b")
    check_assistant(model, same, family("gpt"), _Vocabulary("a", "b"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="vocabulary"):
        check_assistant(model, same, family("gpt"), _Vocabulary("b", "a"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="causal"):
        check_assistant(model, same, family("t5"), same)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one row"):
        list(sample(model, PROMPT.repeat(2, 1), sampling=None, end=None, max_new_tokens=3, assistant=family("gpt")))
