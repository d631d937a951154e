"""The recurrent encoder-decoder: equal to reference implementations of both recipes, and accepted inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.models import Seq2Seq, Seq2SeqConfig
from regard.nn.masks import Packed, Padded

CONFIG = Seq2SeqConfig(source_size=5, target_size=6, hidden_size=4)
TOKENS = replace(CONFIG, source_size=20, target_size=20, embedding_size=5, decoder_start_token_id=2)
VARIANTS: dict[str, dict[str, Any]] = {
    "lstm": {},
    "gru": {"cell": "gru"},
    "depth 2": {"num_hidden_layers": 2},
    "bidirectional": {"bidirectional": True},
    "gru, depth 2, bidirectional": {"cell": "gru", "num_hidden_layers": 2, "bidirectional": True},
}
SCORES = ["none", "dot", "general", "additive"]
Make = Callable[..., Any]


def cell_step(cell: Any, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The next state (h, c) of an LSTM or (h,) of a GRU."""
    if len(state) == 2:
        h, c = state
        i, f, g, o = (cell.weight_ih @ x + cell.bias_ih + cell.weight_hh @ h + cell.bias_hh).chunk(4)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
    (h,) = state
    x_r, x_z, x_n = (cell.weight_ih @ x + cell.bias_ih).chunk(3)
    h_r, h_z, h_n = (cell.weight_hh @ h + cell.bias_hh).chunk(3)
    z = torch.sigmoid(x_z + h_z)
    return ((1 - z) * torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n) + z * h,)


def context_of(model: Seq2Seq, query: Tensor, states: Tensor) -> Tensor:
    """c = sum_i a_i h_i with a = softmax of the scores."""
    cross: Any = model.decoder.cross
    if model.config.score == "dot":
        scores = [query @ h for h in states]
    elif model.config.score == "general":
        scores = [query @ (cross.project.key.weight @ h) for h in states]
    else:
        matrix = torch.cat([cross.project.query.weight, cross.project.key.weight], dim=1)
        scores = [cross.score.v.weight[0] @ torch.tanh(matrix @ torch.cat([query, h])) for h in states]
    raised = torch.stack(scores).exp()
    context = torch.zeros_like(states[0])
    for weight, h in zip(raised / raised.sum(), states, strict=True):
        context = context + weight * h
    return context


def reference_outputs(
    model: Seq2Seq, states: Tensor, last: list[Tensor], targets: list[Tensor] | None, steps: int
) -> Tensor:
    """Decode one sequence as the lectures describe it. `states` (S, units) and `last` are those of the encoder."""
    decoder: Any = model.decoder
    hidden = [tuple(part[layer] for part in last) for layer in range(model.config.num_hidden_layers)]
    attends, x, outputs = model.config.score != "none", states.new_zeros(model.config.target_size), []
    for t in range(steps):
        if attends and model.config.recipe == "deck":  # query: previous state; inputs = concat[context, inputs]
            x = torch.cat([context_of(model, hidden[-1][0], states), x])
        for layer, cell in enumerate(decoder.cell.cells):
            hidden[layer] = cell_step(cell, x, hidden[layer])
            x = hidden[layer][0]
        if attends and model.config.recipe == "luong":  # query: new state; concat[h ; C] -> feed-forward
            both = torch.cat([x, context_of(model, x, states)])
            x = torch.tanh(decoder.join.weight @ both + decoder.join.bias)
        scores = decoder.output.weight @ x + decoder.output.bias
        outputs.append(scores)
        feedback = scores.softmax(-1) if model.config.feedback == "softmax" else scores
        x = feedback if targets is None else targets[t]
    return torch.stack(outputs)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("recipe", ["luong", "deck"])
@pytest.mark.parametrize("score", SCORES)
def test_both_recipes_follow_the_lectures(
    device: torch.device, randomised: Make, score: Any, recipe: Any, variant: str
) -> None:
    config = replace(CONFIG, score=score, recipe=recipe, **VARIANTS[variant])
    model = randomised(Seq2Seq(config), std=0.5).to(device)
    lengths = [4, 2, 1]
    source, target = torch.randn(3, 4, 5, device=device), torch.randn(3, 3, 6, device=device)
    layout = Padded.from_lengths(lengths, device=device)
    forced, free_running = model(source, target, layout), model(source, layout=layout, steps=3)
    assert forced.shape == free_running.shape == (3, 3, 6)
    for b, length in enumerate(lengths):
        states, last = model.encoder(source[b : b + 1, :length], Padded())
        read = states[0], [part[:, 0] for part in last]
        torch.testing.assert_close(forced[b], reference_outputs(model, *read, list(target[b]), 3), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(free_running[b], reference_outputs(model, *read, None, 3), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("score", SCORES)
def test_frames_as_inputs_and_outputs(device: torch.device, randomised: Make, score: Any) -> None:
    """Items may be frames of any width: each decoder output is the next decoder input."""
    config = Seq2SeqConfig(source_size=7, target_size=3, hidden_size=4, score=score, feedback="identity")
    model = randomised(Seq2Seq(config)).to(device)
    frames = torch.randn(2, 6, 7, device=device)
    free = model(frames, steps=5)
    assert free.shape == (2, 5, 3)
    torch.testing.assert_close(model(frames, free), free, atol=1e-5, rtol=1e-4)
    changed = frames.clone()
    changed[:, 0] += 1.0
    assert (model(changed, steps=5) - free).abs().max() > 1e-4


@pytest.mark.parametrize("recipe", ["luong", "deck"])
@pytest.mark.parametrize("score", SCORES)
def test_free_running_equals_teacher_forcing_with_its_own_tokens(
    device: torch.device, randomised: Make, score: Any, recipe: Any
) -> None:
    model = randomised(Seq2Seq(replace(TOKENS, score=score, recipe=recipe)), std=1.0).to(device)
    source, layout = torch.randint(20, (3, 5), device=device), Padded.from_lengths([5, 2, 3], device=device)
    free = model(source, layout=layout, steps=6)
    torch.testing.assert_close(model(source, free.argmax(-1), layout), free, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("recipe", ["luong", "deck"])
@pytest.mark.parametrize("score", SCORES)
def test_step_by_step_decoding_equals_the_full_forward_pass(
    device: torch.device, randomised: Make, score: Any, recipe: Any
) -> None:
    model = randomised(Seq2Seq(replace(TOKENS, score=score, recipe=recipe, num_hidden_layers=2)), std=1.0).to(device)
    source, target = torch.randint(20, (3, 5), device=device), torch.randint(20, (3, 4), device=device)
    layout = Padded.from_lengths([5, 2, 3], device=device)
    whole = model(source, target, layout)
    scores, state = model.start(source, layout)
    for t in range(3):
        torch.testing.assert_close(scores, whole[:, t], atol=1e-5, rtol=1e-4)
        scores, state = model.step(target[:, t], state)
    torch.testing.assert_close(scores, whole[:, 3], atol=1e-5, rtol=1e-4)
    index = torch.tensor([2, 0, 0], device=device)
    state.reorder(index)
    scores, state = model.step(target[index, 3], state)
    decoder_inputs = torch.cat([target, target[:, :1]], dim=1)[index]
    expected = model(source[index], decoder_inputs, Padded(layout.mask[index]))[:, 4]
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-4)


def test_the_first_token_is_begin(device: torch.device, randomised: Make) -> None:
    model = randomised(Seq2Seq(replace(TOKENS, score="dot"))).to(device)
    source = torch.randint(20, (2, 4), device=device)
    first, _ = model.start(source)
    after_begin, _ = model.step(torch.full((2,), 2, device=device), model.encode(source))
    assert torch.equal(first, after_begin)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("score", ["none", "additive"])
def test_output_does_not_depend_on_the_batch(
    device: torch.device, randomised: Make, check_batch_invariance: Make, texts: Make, score: Any, variant: str
) -> None:
    """For padded and packed sources in any order."""
    model = randomised(Seq2Seq(replace(TOKENS, score=score, **VARIANTS[variant]))).to(device).eval()
    target = torch.randint(20, (1, 2), device=device)
    trials = 100 if variant == "lstm" else 15
    run = lambda side: model(side[0], target.expand(num_sequences(*side), -1), side[1])  # noqa: E731
    check_batch_invariance(run, texts(device), whole=True, trials=trials)


def num_sequences(source: Tensor, layout: Padded | Packed) -> int:
    return len(layout.lengths) if isinstance(layout, Packed) else len(source)


@pytest.mark.parametrize("recipe", ["luong", "deck"])
@pytest.mark.parametrize("score", SCORES)
def test_later_targets_do_not_change_earlier_outputs(
    device: torch.device, randomised: Make, score: Any, recipe: Any
) -> None:
    """With teacher forcing, the model never sees the item it predicts."""
    model = randomised(Seq2Seq(replace(CONFIG, score=score, recipe=recipe))).to(device)
    source, target = torch.randn(2, 4, 5, device=device), torch.randn(2, 5, 6, device=device)
    other = target.clone()
    other[:, 2:] += 1.0
    before, after = model(source, target), model(source, other)
    assert torch.equal(after[:, :3], before[:, :3])
    assert (after[:, 3:] - before[:, 3:]).abs().amax(-1).min() > 1e-5


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("recipe", ["luong", "deck"])
@pytest.mark.parametrize("score", SCORES)
def test_gradients_reach_all_parameters(
    device: torch.device, randomised: Make, score: Any, recipe: Any, variant: str
) -> None:
    config = replace(TOKENS, score=score, recipe=recipe, **VARIANTS[variant])
    model = randomised(Seq2Seq(config)).to(device)
    ids = torch.arange(20, device=device).view(4, 5)
    model(ids, ids).pow(2).sum().backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not missing
    assert model.source_embedding.weight.grad.abs().sum(1).min() > 0


def test_model_without_attention_uses_only_the_last_state(device: torch.device, randomised: Make) -> None:
    model = randomised(Seq2Seq(CONFIG)).to(device)
    state = model.encode(torch.randn(2, 4, 5, device=device))
    x = torch.randn(2, 6, device=device)
    expected, _ = model.step(x, state)
    state.memory = torch.randn_like(state.memory)
    assert torch.equal(model.step(x, state)[0], expected)


def test_target_and_steps_are_mutually_exclusive() -> None:
    with pytest.raises(ValueError, match="a number of steps"):
        Seq2Seq(CONFIG)(torch.randn(1, 2, 5))


def test_dropout_applies_to_token_embeddings_in_training_only(randomised: Make) -> None:
    model = randomised(Seq2Seq(replace(TOKENS, dropout=0.5, score="dot")))
    source, target = torch.randint(0, 20, (2, 3)), torch.randint(0, 20, (2, 4))
    model.eval()
    assert torch.equal(model(source, target), model(source, target))
    model.train()
    seen: list[Tensor] = []
    handle = model.encoder.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(source, target)
    handle.remove()
    vectors = model.source_embedding(source)
    gone = seen[0] == 0
    assert gone.any() and not gone.all()
    torch.testing.assert_close(seen[0][~gone], 2 * vectors[~gone])
