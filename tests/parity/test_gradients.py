"""Gradients of a loss with respect to every parameter against transformers, mapped by the rename tables."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from regard.checkpoints.files import read_tensors
from regard.checkpoints.loading import fitted, from_theirs, names_of, tensor_table
from regard.nn.masks import Layout, Packed
from tests.parity.references import DECODERS, LENGTHS, Pair, clip_ids, close, ids, remove_padding
from tests.parity.test_encoder_decoders import TARGET_LENGTHS, targets

Pairs = Callable[[str], Pair]
ENCODERS = [
    *("bert", "bert-bare", "bert-masked", "bert-next", "distilbert", "roberta", "roberta-bare"),
    *("xlm-roberta", "camembert", "mpnet", "mpnet-bare", "electra", "electra-small", "albert", "albert-masked"),
    *("nomic-bert", "gte", "jina-bert", "eurobert", "embeddinggemma"),
    *("modernbert", "modernbert-untied", "deberta-v2", "deberta-v2-conv", "deberta-v2-c2p", "deberta-v2-p2c"),
]
ENCODER_DECODERS = ["t5", "t5-untied", "t5-gelu", "bart", "mbart", "marian", "marian-separate"]
CAUSAL = [name for name in DECODERS if not name.endswith("bare")]
TEXT = [*ENCODERS, *CAUSAL, *ENCODER_DECODERS]
# For any dtype of the model, transformers computes RMS norms, rotary positions and some softmaxes in float32.
INEXACT = ["modernbert", "modernbert-untied", "nomic-bert", "gte", "eurobert", "embeddinggemma"]
IMAGES = ["vit", "deit", "deit-plain"]
PIXELS = torch.randn(3, 2, 8, 12, generator=torch.Generator().manual_seed(4)).double()
SQUARES = torch.randn(3, 3, 10, 10, generator=torch.Generator().manual_seed(4)).double()


def their_outputs(name: str, pair: Pair) -> list[Tensor]:
    """All outputs of the model, without padding."""
    if name in IMAGES:
        return [pair.theirs(PIXELS).logits]
    if name == "clip":
        tokens, layout = clip_ids()
        assert layout.mask is not None
        return [pair.theirs(tokens, SQUARES, attention_mask=layout.mask.long()).logits_per_image]
    tokens, layout = ids(padding=pair.theirs.config.pad_token_id or 0)
    assert layout.mask is not None
    if name in ENCODER_DECODERS:
        words, target_layout = targets()
        logits = pair.theirs(tokens, attention_mask=layout.mask.long(), decoder_input_ids=words).logits
        return [remove_padding(logits, target_layout)]
    # Causal models do not see padding on the right, and padding outside a window would give transformers NaN.
    output = pair.theirs(tokens, attention_mask=None if name in CAUSAL else layout.mask.long())
    if name in ("bert", "albert"):
        pairs = output.seq_relationship_logits if name == "bert" else output.sop_logits
        return [remove_padding(output.prediction_logits, layout), pairs]
    if name == "bert-next":
        return [output.logits]
    if name == "embeddinggemma":
        return [remove_padding(output.last_hidden_state, layout)]
    if name.endswith("bare"):
        return [remove_padding(output.last_hidden_state, layout), output.pooler_output]
    return [remove_padding(output.logits, layout)]


def our_outputs(name: str, pair: Pair, *, packed: bool) -> list[Tensor]:
    model = pair.ours
    layout: Layout
    if name in IMAGES:
        return [model.logits(model(PIXELS))]
    if name == "clip":
        tokens, padded = clip_ids()
        layout = Packed.from_lengths(LENGTHS) if packed else padded
        texts = model.encode_text(remove_padding(tokens, padded) if packed else tokens, layout)
        return [model.logits_per_image(model.encode_image(SQUARES), texts)]
    tokens, padded = ids(padding=pair.theirs.config.pad_token_id or 0)
    layout = Packed.from_lengths(LENGTHS) if packed else padded
    tokens = remove_padding(tokens, padded) if packed else tokens
    if name in ENCODER_DECODERS:
        words, target_layout = targets()
        if packed:
            return [
                model.logits(
                    model(tokens, remove_padding(words, target_layout), layout, Packed.from_lengths(TARGET_LENGTHS))
                )
            ]
        return [remove_padding(model.logits(model(tokens, words, layout, target_layout)), target_layout)]
    hidden = model(tokens, layout)
    rows = hidden if packed else remove_padding(hidden, padded)
    if name in CAUSAL:
        return [model.logits(rows)]
    if getattr(model, "discriminator", None):
        return [model.discriminator(rows)]
    outputs = [model.mlm_head(rows)] if model.mlm_head else [rows] if not getattr(model, "nsp_head", None) else []
    if getattr(model, "pooler", None):
        pooled = model.pooler(hidden, layout)
        outputs.append(model.nsp_head(pooled) if model.nsp_head else pooled)
    return outputs


def loss(outputs: list[Tensor]) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.stack([(x * torch.randn(x.shape, generator=generator)).sum() for x in outputs]).sum()


def in_float64(pair: Pair) -> Pair:
    """Both models in float64. In float32 without AVX2, the order of sums moves one of 1,728 gradients beyond 1e-4."""
    theirs = deepcopy(pair.theirs).double()
    if theirs.config.model_type in (
        "modernbert",
        "gemma3_text",
    ):  # otherwise, rows that see only padding are NaN in float64
        theirs.set_attn_implementation("sdpa")
    ours = deepcopy(pair.ours).double()
    if theirs.config.model_type == "deberta-v2":  # transformers computes the scale of the scores in float32
        for block in ours.encoder.layers:
            block.attention.scale = 1 / float(torch.tensor(block.attention.scale**-2).round().sqrt())
    return replace(pair, ours=ours, theirs=theirs)


def their_gradients(pair: Pair, loss: Tensor) -> dict[str, Tensor]:
    """Gradients by the names of the tensors in the file, matched by value: in memory transformers may use other names,
    split a tensor of the file, or stack several."""
    tensors, buffers = read_tensors(pair.folder), dict(pair.theirs.named_buffers())
    parameters = [parameter for parameter in pair.theirs.parameters() if parameter.requires_grad]
    left = list(zip(parameters, torch.autograd.grad(loss, parameters), strict=True))
    flat = left + [pair for stack in left if stack[0].ndim == 3 for pair in zip(*stack, strict=True)]
    found: dict[str, Tensor] = {}
    for name in tensors.keys() - buffers.keys():
        tensor = tensors[name]
        same = [gradient for part, gradient in flat if torch.equal(part, tensor)]
        found[name] = same[0] if same else _assembled(tensor, flat)
    assert sum(map(Tensor.numel, found.values())) == sum(map(Tensor.numel, parameters))
    return found


def _assembled(tensor: Tensor, flat: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The gradient of a tensor that is a half of a parameter, or of which parameters are parts."""
    for part, gradient in flat:
        for half, half_gradient in zip(part.chunk(2), gradient.chunk(2), strict=True):
            if torch.equal(half, tensor):
                return half_gradient
    gradients: list[Tensor] = []
    while (start := sum(map(len, gradients))) < len(tensor):
        gradients.append(
            next(gradient for part, gradient in flat if torch.equal(part, tensor[start : start + len(part)]))
        )
    return torch.cat(gradients)


@pytest.mark.parametrize(("name", "packed"), [*product([*TEXT, "clip"], [False, True]), *product(IMAGES, [False])])
def test_every_gradient(pair: Pairs, name: str, packed: bool) -> None:
    one = in_float64(pair(name))
    expected = their_gradients(one, loss(their_outputs(name, one)))
    names = fitted(names_of(one.ours.config), expected)
    parameters = dict(one.ours.named_parameters(remove_duplicate=False))
    table = {ours: parts for ours, parts in tensor_table(names, one.ours).items() if ours in parameters}
    assert {name for several in table.values() for name in several} == set(expected)
    assert set(table) == set(parameters)
    found = torch.autograd.grad(loss(our_outputs(name, one, packed=packed)), [*one.ours.parameters()])
    for (ours, _), gradient in zip(one.ours.named_parameters(), found, strict=True):
        wanted = from_theirs(names, ours, [expected[part] for part in table[ours]])
        # A bias of the keys adds the same to all scores of a query, so its gradient is zero. With the term c2p alone,
        # that of the vectors of distances does so too.
        zero = ours.endswith(("key.bias", "relative.norm.bias"))
        assert wanted.abs().max() > 1e-3 or zero, f"{ours} has no gradient to compare"
        exact = name.startswith(("gpt2", "openai-gpt", "bart", "mbart", "marian"))
        exact = exact or (name in ENCODERS and name not in INEXACT)
        close(gradient, wanted, 1e-9 if exact else 1e-4)
