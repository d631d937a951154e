"""Recording in every family: attention maps against a reference, hidden states, queries and keys, decoding steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.nn.block import Block
from regard.nn.recording import record
from regard.nn.stack import Stack

FAMILIES = ["bert", "gpt", "t5", "transformer", "vit"]
SCORES = ["seq2seq, dot", "seq2seq, general", "seq2seq, additive"]
Maker = Callable[..., Any]


def reference_map(attention: Any, query: Tensor, key: Tensor, may: Tensor, bias: Tensor | None) -> Tensor:
    """The map (B, H, T, S) from projected queries and keys: row-wise softmax over the visible keys."""
    heads, scale = attention.heads, attention.scale
    B, T, S, D = len(query), query.shape[1], key.shape[1], query.shape[2] // heads
    maps = query.new_zeros(B, heads, T, S)
    for b in range(B):
        for h in range(heads):
            q, k = query[b, :, h * D : (h + 1) * D], key[b, :, h * D : (h + 1) * D]
            for t in range(T):
                seen = may[b, t].nonzero()[:, 0]
                scores = k[seen] @ q[t] * (1 / math.sqrt(D) if scale is None else scale)
                if bias is not None:
                    scores = scores + bias[0, h, t, seen]
                maps[b, h, t, seen] = scores.exp() / scores.exp().sum()
    return maps


def expected_maps(
    stack: Stack, states: list[Tensor], keep: Tensor, memory: Tensor | None, source: Tensor | None
) -> Any:
    """The self- and cross-attention maps of each layer, computed from its input states."""
    T = keep.shape[1]
    maps: dict[str, list[Tensor]] = {"self": [], "cross": []}
    bias = None if stack.relative is None else stack.relative(T, T)
    for x, layer in zip(states, stack.layers, strict=False):
        block: Any = layer
        assert isinstance(block, Block)
        inside = block.attention_residual.norm(x) if block.attention_residual.first else x
        query, key, value = (inside @ block.attention.project.weight.T).chunk(3, dim=-1)
        if block.attention.project.bias is not None:
            shifts = block.attention.project.bias.chunk(3)
            query, key, value = (p + s for p, s in zip((query, key, value), shifts, strict=True))
        order = torch.ones(T, T, dtype=torch.bool, device=x.device)
        may = keep[:, None] & (order.tril() if block.attention.causal else order)
        maps["self"].append(reference_map(block.attention, query, key, may, bias))
        if block.has_cross_attention:
            heads = value.unflatten(-1, (block.attention.heads, -1)).transpose(1, 2)
            branch = block.attention.output((maps["self"][-1] @ heads).transpose(1, 2).flatten(-2))
            x = x + branch if block.attention_residual.first else block.attention_residual.norm(x + branch)
            inside = block.cross_residual.norm(x) if block.cross_residual.first else x
            project = block.cross.project
            may = source[:, None].expand(-1, T, -1)
            maps["cross"].append(reference_map(block.cross, project.query(inside), project.key(memory), may, None))
    return maps


def rectangle(lengths: list[int], device: torch.device) -> Tensor:
    return torch.arange(max(lengths), device=device) < torch.tensor(lengths, device=device)[:, None]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", FAMILIES)
def test_maps_equal_the_reference(device: torch.device, sample: Maker, name: str, training: bool) -> None:
    s = sample(name, device)
    s.model.train(training)
    with record(s.model) as tape:
        s.model(*s.padded)
    source_mask = rectangle(s.lengths, device)
    part = "decoder" if name == "gpt" else "encoder"
    states = tape.hidden(part)
    maps = expected_maps(getattr(s.model, part), states, source_mask, None, None)
    for got, expected in zip(tape.attention("self", part), maps["self"], strict=True):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)
    if s.target_lengths:
        maps = expected_maps(
            s.model.decoder, tape.hidden("decoder"), rectangle(s.target_lengths, device), states[-1], source_mask
        )
        for kind in ("self", "cross"):
            for got, expected in zip(tape.attention(kind, "decoder"), maps[kind], strict=True):
                torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", SCORES)
def test_maps_of_recurrent_attention(device: torch.device, sample: Maker, name: str) -> None:
    """(B, 1, T, S): one row per step, from the decoder and encoder states."""
    s = sample(name, device)
    with record(s.model) as tape:
        s.model(*s.padded)
    (got,) = tape.attention("cross")
    memory, cross = tape.hidden("encoder")[1], s.model.decoder.cross
    state, x = s.model.encode(s.padded[0], s.padded[2]), s.model._first(s.model.encode(s.padded[0], s.padded[2]))
    assert got.shape == (4, 1, 4, 5)
    for t in range(4):
        _, state = s.model.decoder(x, state)
        for b, length in enumerate(s.lengths):
            h, query = memory[b, :length], state.output[b]
            if name.endswith("dot"):
                scores = h @ query
            elif name.endswith("general"):
                scores = (h @ cross.project.key.weight.T) @ query
            else:
                both = torch.cat([query.expand_as(h), h], dim=-1)
                joined = torch.cat([cross.project.query.weight, cross.project.key.weight], dim=1)
                scores = torch.tanh(both @ joined.T) @ cross.score.v.weight[0]
            torch.testing.assert_close(got[b, 0, t, :length], scores.softmax(0), atol=1e-5, rtol=1e-4)
            assert got[b, 0, t, length:].abs().sum() == 0
        x = s.model._vector(s.padded[1][:, t])


@pytest.mark.parametrize("name", [*FAMILIES, "elmo", *SCORES])
def test_hidden_states_are_numbered_from_the_embeddings_to_the_output(
    device: torch.device, sample: Maker, name: str
) -> None:
    s = sample(name, device)
    with record(s.model) as tape:
        output = s.model(*s.padded)
    config = s.model.config
    if name.startswith("seq2seq"):
        states = tape.hidden("encoder")
        torch.testing.assert_close(states[0], s.model.source_embedding(s.padded[0]))
        assert torch.equal(states[-1], s.model.encode(s.padded[0], s.padded[2]).memory) and len(states) == 2
        return
    if name == "elmo":
        embedded = s.model.embedding(s.padded[0])
        embedded = torch.cat([embedded, embedded], dim=-1)
    elif name in ("t5", "transformer"):
        embedded = s.model.decoder_embedding(s.padded[1], s.padded[3])
    else:
        embedded = s.model.embedding(*s.padded)
    part = "decoder" if s.target_lengths or name == "gpt" else "encoder"
    states = tape.hidden(part)
    assert len(states) == 1 + (config.num_decoder_layers if name == "t5" else config.num_hidden_layers)
    assert torch.equal(states[0], embedded) and torch.equal(states[-1], output)
    assert len({state.shape for state in states}) == 1
    if s.target_lengths:
        encoded = tape.hidden("encoder")
        assert len(encoded) == 1 + config.num_hidden_layers
        assert torch.equal(encoded[-1], s.model.encode(s.padded[0], s.padded[2]))


@pytest.mark.parametrize("name", ["bert", "gpt", "t5", "transformer", *SCORES])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_padded_and_packed_recordings_are_equal(device: torch.device, sample: Maker, name: str, training: bool) -> None:
    s = sample(name, device)
    s.model.train(training)
    with record(s.model) as rows:
        s.model(*s.padded)
    with record(s.model) as line:
        s.model(*s.packed)
    sites = {site: None for site in rows.calls}
    assert list(line.calls) == list(sites)
    for site in sites:
        query_lengths = s.target_lengths if site.part == "decoder" and s.target_lengths else s.lengths
        key_lengths = s.lengths if site.kind == "cross" else query_lengths
        location = site.kind, site.part
        for get in ("attention", "queries", "keys"):
            for one, other in zip(getattr(rows, get)(*location), getattr(line, get)(*location), strict=True):
                assert one.shape == other.shape
                for b, (t, k) in enumerate(zip(query_lengths, key_lengths, strict=True)):
                    shape = {"attention": (slice(t), slice(k)), "queries": (slice(t),), "keys": (slice(k),)}[get]
                    torch.testing.assert_close(one[b, :, *shape], other[b, :, *shape], atol=1e-5, rtol=1e-4)
                    if get == "attention":
                        assert other[b, :, t:].abs().sum() == 0 and other[b, :, :, k:].abs().sum() == 0


@pytest.mark.parametrize("name", FAMILIES)
def test_queries_and_keys_give_the_map(device: torch.device, sample: Maker, name: str) -> None:
    s = sample(name, device)
    with record(s.model) as tape:
        s.model(*s.padded)
    part = "decoder" if s.target_lengths or name == "gpt" else "encoder"
    size = (s.model.config.head_dim if name == "t5" else 4, max(s.target_lengths or s.lengths))
    for query, key in zip(tape.queries("self", part), tape.keys("self", part), strict=True):
        assert query.shape == key.shape == (len(s.lengths), 2, size[1], size[0])
    if s.target_lengths:
        queries, keys, maps = (getattr(tape, get)("cross", "decoder") for get in ("queries", "keys", "attention"))
        attention = s.model.decoder.layers[0].cross
        for query, key, weights in zip(queries, keys, maps, strict=True):
            assert query.shape == (4, 2, 4, size[0]) and key.shape == (4, 2, 5, size[0])
            scores = (query @ key.transpose(-2, -1) * attention.score_scale(query)).exp()
            scores = scores * rectangle(s.lengths, device)[:, None, None]
            torch.testing.assert_close(weights, scores / scores.sum(-1, keepdim=True), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", [*FAMILIES, "elmo", *SCORES])
def test_recording_does_not_change_the_output_bitwise(
    device: torch.device, sample: Maker, name: str, training: bool
) -> None:
    s = sample(name, device)
    s.model.train(training)
    for batch in (s.padded, s.packed):
        if batch is None:
            continue
        before = s.model(*batch)
        with record(s.model):
            during = s.model(*batch)
        assert torch.equal(before, during) and torch.equal(before, s.model(*batch))


@pytest.mark.parametrize("name", ["gpt", "t5", "transformer", *SCORES])
def test_decoding_steps_are_joined(device: torch.device, sample: Maker, name: str) -> None:
    """Cached decoding gives the same tape as one forward pass over the generated tokens."""
    s = sample(name, device)
    prompt, target = s.padded[0], torch.randint(1, 20, (4, 3), device=device)
    layout = None if name == "gpt" else s.padded[-1 if name.startswith("seq2seq") else 2]
    with record(s.model) as steps:
        _, state = s.model.start(prompt, layout)
        for t in range(3):
            _, state = s.model.step(target[:, t], state)
    begin = torch.full((4, 1), s.model.config.decoder_start_token_id if name != "gpt" else 0, device=device)
    with record(s.model) as whole:
        if name == "gpt":
            s.model(torch.cat([prompt, target], dim=1))
        elif name.startswith("seq2seq"):
            s.model(prompt, torch.cat([target, begin], dim=1), layout)
        else:
            s.model(prompt, torch.cat([begin, target], dim=1), layout)
    assert list(steps.calls) == list(whole.calls)
    for site in whole.calls:
        for get in ("attention", "queries", "keys"):
            location = site.kind, site.part
            for one, other in zip(getattr(steps, get)(*location), getattr(whole, get)(*location), strict=True):
                torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    for part in whole.states:
        for one, other in zip(steps.hidden(part), whole.hidden(part), strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_errors_list_the_available_records(device: torch.device, sample: Maker) -> None:
    s = sample("t5", device)
    with record(s.model) as tape:
        with pytest.raises(KeyError, match="no self attention of any part on the tape; it has nothing"):
            tape.attention()
        with pytest.raises(KeyError, match="no hidden states of any part on the tape; it has nothing"):
            tape.hidden()
        s.model(*s.padded)
    with pytest.raises(KeyError, match=r"part=.*'decoder', 'self'.*'encoder', 'self'"):
        tape.attention("self")
    with pytest.raises(KeyError, match=r"no crosss attention .*; it has .*'decoder', 'cross'"):
        tape.attention("crosss")
    with pytest.raises(KeyError, match=r"no cross attention of encoder .*'decoder', 'cross'"):
        tape.queries("cross", "encoder")
    with pytest.raises(KeyError, match=r"hidden states of embeddings .* has \['encoder', 'decoder'\]"):
        tape.hidden("embeddings")
