"""Greedy and beam search against transformers' `generate`: the same hypotheses in the same order, and their scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
import transformers
from torch import Tensor

from regard.inference.generation.beam_search import Beam, Hypothesis, beam_search, greedy_search
from regard.models import Transformer, TransformerConfig
from regard.nn.masks import Padded
from tests.parity.references import VOCABULARY, Pair, ids, pair_of, randomised

Outputs: TypeAlias = list[tuple[tuple[int, ...], bool]]
STEPS = 7
BEAMS = [
    Beam(num_beams=4, num_return_sequences=4),
    Beam(num_beams=3, num_return_sequences=2, length_penalty=0.0),
    Beam(num_beams=5, num_return_sequences=5, length_penalty=2.0, early_stopping=True),
    Beam(num_beams=2, length_penalty=-1.0),
]
NAMES = {
    "self_attn.out_proj": "attention.output",
    "self_attn_layer_norm": "attended.norm",
    "encoder_attn.q_proj": "cross.project.query",
    "encoder_attn.k_proj": "cross.project.key",
    "encoder_attn.v_proj": "cross.project.value",
    "encoder_attn.out_proj": "cross.output",
    "encoder_attn_layer_norm": "crossed.norm",
    "fc1": "ffn.inner",
    "fc2": "ffn.outer",
    "final_layer_norm": "fed.norm",
}


def marian() -> Pair:
    """MarianMT: the Transformer of 2017 with sines and cosines in separate halves."""
    shape = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    config = transformers.MarianConfig(
        **shape,
        vocab_size=VOCABULARY,
        d_model=24,
        encoder_ffn_dim=37,
        decoder_ffn_dim=37,
        max_position_embeddings=32,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
        attn_implementation="eager",
    )
    theirs = transformers.MarianMTModel(config)
    fixed = [theirs.model.encoder.embed_positions.weight, theirs.model.decoder.embed_positions.weight]
    sines = [table.detach().clone() for table in fixed]
    randomised(theirs)
    with torch.no_grad():
        for table, values in zip(fixed, sines, strict=True):
            table.copy_(values)
        theirs.model.shared.weight.mul_(24**-0.5)
    ours = Transformer(
        TransformerConfig(
            vocab_size=VOCABULARY,
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=37,
            layer_norm_eps=1e-5,
            arrangement="halves",
            dropout=0.0,
        )
    )
    ours.load_state_dict(rename_tensors(theirs.state_dict()))
    return Pair(theirs, ours.eval(), Path())


def rename_tensors(state: dict[str, Tensor]) -> dict[str, Tensor]:
    found = {"embedding.tokens.weight": state["model.shared.weight"]}
    for name, tensor in state.items():
        if ".layers." not in name or (".self_attn." in name and ".out_proj." not in name):
            continue
        new = name.removeprefix("model.")
        for theirs, ours in NAMES.items():
            new = new.replace(f".{theirs}.", f".{ours}.")
        found[new] = tensor
    for name in state:
        if ".self_attn.q_proj." in name:
            parts = [state[name.replace(".q_proj.", f".{part}_proj.")] for part in "qkv"]
            new = name.removeprefix("model.").replace("self_attn.q_proj", "attention.project")
            found[new] = torch.cat(parts)
    return found


@pytest.fixture(scope="module", params=["gpt2", "t5", "t5-gelu", "marian"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return marian() if request.param == "marian" else pair_of(request.param, tmp_path_factory.mktemp(request.param))


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
    words = [token for row in found for one in row for token in one.ids if token != VOCABULARY - 1]
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
