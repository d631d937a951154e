"""Greedy and beam search against transformers' `generate`: the same hypotheses in the same order, and their scores."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor

from regard.inference.generation.beam_search import Beam, Hypothesis, beam_search, greedy_search
from regard.nn.masks import Padded
from tests.parity.references import VOCABULARY, Pair, ids, pair_of

Outputs: TypeAlias = list[tuple[tuple[int, ...], bool]]
STEPS = 7
BEAMS = [
    Beam(num_beams=4, num_return_sequences=4),
    Beam(num_beams=3, num_return_sequences=2, length_penalty=0.0),
    Beam(num_beams=5, num_return_sequences=5, length_penalty=2.0, early_stopping=True),
    Beam(num_beams=2, length_penalty=-1.0),
]


@pytest.fixture(scope="module", params=["gpt2", "t5", "t5-gelu", "bart", "mbart", "marian"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """BART is forced to begin with a token, and Marian must not generate its padding, which is likely here."""
    name: str = request.param
    made = pair_of(name, tmp_path_factory.mktemp(name))
    if name == "bart":
        made.theirs.generation_config.forced_bos_token_id = made.ours.forced_first = 7
    if name == "marian":
        made.theirs.generation_config.bad_words_ids = [[made.theirs.config.pad_token_id]]
        for model in (made.theirs, made.ours):
            model.final_logits_bias[0, made.theirs.config.pad_token_id] = 2.0
    return made


def inputs(pair: Pair) -> tuple[Tensor, Padded]:
    """GPT-2's prompts have equal lengths because transformers pads on the left and Regard on the right."""
    tokens, layout = ids()
    return (tokens[:, :4], Padded()) if pair.theirs.config.model_type == "gpt2" else (tokens, layout)


def transformers_outputs(pair: Pair, end: int, **settings: Any) -> tuple[Outputs, list[float]]:
    """transformers' output: tokens without the end token, whether they ended, and the beam scores."""
    tokens, layout = inputs(pair)
    mask = torch.ones_like(tokens) if layout.mask is None else layout.mask.long()
    output = pair.theirs.generate(
        tokens,
        attention_mask=mask,
        max_new_tokens=STEPS,
        do_sample=False,
        eos_token_id=end,
        pad_token_id=VOCABULARY - 1,
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )
    prompt = tokens.shape[1] if pair.theirs.config.model_type == "gpt2" else 1
    tokens_and_ends: Outputs = []
    for row in output.sequences[:, prompt:].tolist():
        ended = end in row
        tokens_and_ends.append((tuple(row[: row.index(end)] if ended else row[:STEPS]), ended))
    scores = output.sequences_scores if settings.get("num_beams", 1) > 1 else torch.zeros(0)
    return tokens_and_ends, scores.tolist()


def outputs(found: list[Hypothesis]) -> Outputs:
    return [(one.ids, one.finished) for one in found]


def likely_ends(pair: Pair, count: int) -> list[int]:
    """Likely tokens: with one of them as the end token, some hypotheses end and some do not."""
    tokens, layout = inputs(pair)
    found = beam_search(
        pair.ours, tokens, layout, beam=Beam(num_beams=8, num_return_sequences=8), end=None, max_new_tokens=STEPS
    )
    excluded = (VOCABULARY - 1, getattr(pair.ours, "forced_first", None))
    words = [token for row in found for one in row for token in one.ids if token not in excluded]
    return sorted(set(words), key=lambda token: -words.count(token))[1 : 1 + count]


@pytest.mark.filterwarnings("ignore")
def test_greedy(pair: Pair) -> None:
    tokens, layout = inputs(pair)
    for end in likely_ends(pair, 4):
        ours = greedy_search(pair.ours, tokens, layout, end=end, max_new_tokens=STEPS)
        assert outputs(ours) == transformers_outputs(pair, end)[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("beam", BEAMS, ids=str)
def test_beam(pair: Pair, beam: Beam) -> None:
    tokens, layout = inputs(pair)
    ends: set[bool] = set()
    for end in likely_ends(pair, 4):
        ours = beam_search(pair.ours, tokens, layout, beam=beam, end=end, max_new_tokens=STEPS)
        tokens_and_ends, scores = transformers_outputs(
            pair,
            end,
            num_beams=beam.num_beams,
            num_return_sequences=beam.num_return_sequences,
            length_penalty=beam.length_penalty,
            early_stopping=beam.early_stopping,
        )
        flat = [one for row in ours for one in row]
        assert outputs(flat) == tokens_and_ends
        assert [one.score for one in flat] == pytest.approx(scores, abs=1e-4)
        ends |= {one.finished for one in flat}
    assert True in ends, "nothing ended: the rules of ending were not compared"
