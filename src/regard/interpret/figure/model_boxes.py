"""From the inputs to the probabilities: the boxes that a model has, in the order of the figure, with their tensors.

Knows how the families are put together. Knows no text and no page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from torch import Tensor, nn

from regard.interpret.figure import equations as snippets
from regard.interpret.figure.boxes import Box, BoxGroup, BoxKind, ModuleCalls, NamedTensor, TensorSpec, run_box
from regard.models import Bert, Gpt, Transformer
from regard.models.bert import MaskedHead
from regard.nn import Attention, Block, FusedProjection, Residual, SeparateProjections, Stack, TextEmbedding
from regard.nn.block import ACTIVATIONS
from regard.nn.positions import LearnedPositions, SinusoidalPositions

__all__ = ["model_boxes"]

ABOUT: dict[str, str] = {
    "embedding": "Each token's row of the embedding matrix: the product of its one-hot vector with it.",
    "positions": "A vector for each place is added, not put beside: attention by itself sees no order.",
    "attention": "Every token asks with its query all keys of the text, and takes the average of their values.",
    "masked": "Every token asks itself and those before it. The future is masked: it must not see what it should say.",
    "unmasked": "The mask is switched off: every token also sees those after it, which it should say.",
    "cross": "Queries of the decoder; keys and values of the encoder's top, the same for every layer.",
    "add": "What goes around the sublayer is added to what comes out of it; then each vector gets mean 0 and size 1.",
    "no add": "The residual is switched off: only what comes out of the sublayer goes on.",
    "no positions": "Switched off: nothing is added.",
    "plain add": "What goes around the norm and the sublayer is added to what comes out of them.",
    "norm": "Each vector gets mean 0 and variance 1, then a gain and a bias for each number.",
    "ffn": "Two linear maps with an activation between, for each token by itself.",
    "transform": "One more layer before words are compared, as BERT's head has it.",
    "linear": "A score for each word of the vocabulary: the product with its embedding.",
    "softmax": "Scores to probabilities, and the likeliest word.",
}


@dataclass(frozen=True, eq=False)
class _StackBoxes:
    """One half of the figure: its embedding, which call of it is meant, its layers, and what is switched off."""

    part: str
    embedding: TextEmbedding
    call: int
    stack: Stack
    calls: ModuleCalls
    off: Collection[str]
    both: bool

    def box(self, name: str, kind: BoxKind, group: BoxGroup, title: str, code: str, *, about: str | None = None) -> Box:
        return Box(f"{self.part}.{name}", self.part, group, kind, title, ABOUT[about or kind], code)

    def of(self, name: str, tensor: Tensor) -> NamedTensor:
        return NamedTensor(name, tensor[0], self.part)

    @property
    def blocks(self) -> list[Block]:
        return [block for block in self.stack.layers if isinstance(block, Block)]


def model_boxes(
    model: Bert | Gpt | Transformer, calls: ModuleCalls, logits: Tensor, off: Collection[str]
) -> tuple[Box, ...]:
    """The boxes of a model whose one forward was watched, and which gave `logits` (T, V)."""
    found: list[Box] = []
    for half in _halves(model, calls, off):
        found += _inputs(half)
        found += _layers(half)
    last = found[-1]
    hidden = next(one.tensor for one in last.steps[-1].values if one.name == "out")
    head = model.masked if isinstance(model, Bert) else None
    embedding = model.said.tokens if isinstance(model, Transformer) else model.embedding.tokens
    return (*found, *_head(last.part, hidden, logits, embedding.weight, head, calls))


def _halves(model: Bert | Gpt | Transformer, calls: ModuleCalls, off: Collection[str]) -> Iterator[_StackBoxes]:
    if isinstance(model, Transformer):
        yield _StackBoxes("encoder", model.embedding, 0, model.encoder, calls, off, True)
        yield _StackBoxes("decoder", model.said, -1, model.decoder, calls, off, True)
    elif isinstance(model, Gpt):
        yield _StackBoxes("decoder", model.embedding, 0, model.decoder, calls, off, False)
    else:
        yield _StackBoxes("encoder", model.embedding, 0, model.encoder, calls, off, False)


def _inputs(half: _StackBoxes) -> Iterator[Box]:
    module = half.embedding
    call = half.calls[module][half.call]
    ids, out = call.given[0][0], call.result[0]
    # What is in the norm, where there is one, is the sum of the vectors; else that is the result itself.
    total = out if module.norm is None else half.calls[module.norm][half.call].given[0][0]
    title = "Output Embedding" if half.both and half.part == "decoder" else "Input Embedding"
    code = snippets.embedding(scaled=module.scale != 1.0, segments=module.segments is not None)
    weights = {"E": module.tokens.weight, "S": None if module.segments is None else module.segments.weight}
    place = module.positions
    # The model keeps no tensor between the two sums; what it added last is taken away again.
    before = total if place is None else total - half.calls[place][half.call].result
    first = run_box(code, [NamedTensor("ids", ids, half.part)], weights, before, shown=[("out", half.part, None)])
    yield replace(half.box("embedding", "embedding", "in", title, code), steps=(first,))
    if place is not None:
        on = "positions" not in half.off
        learned = place if isinstance(place, LearnedPositions) else None
        arrangement = place.arrangement if isinstance(place, SinusoidalPositions) else None
        code = snippets.positions(arrangement, offset=learned.offset if learned else 0, on=on)
        shown = [("p", half.part, None), ("out", half.part, None)]
        x = replace(first.values[-1], name="x")
        one = run_box(code, [x], {"P": learned.weight if learned and on else None}, total, shown=shown)
        about = "positions" if on else "no positions"
        yield replace(half.box("positions", "positions", "in", "Positional Encoding", code, about=about), steps=(one,))
    if module.norm is not None:
        yield _norm(half, "embedding_norm", "in", [module.norm], half.call)


def _layers(half: _StackBoxes) -> Iterator[Box]:
    blocks = half.blocks
    own, crossed = [block.attention for block in blocks], blocks[0].has_cross_attention
    decoder = half.part == "decoder"
    title, about = ("Masked Multi-Head Attention", "masked") if decoder else ("Multi-Head Attention", "attention")
    if decoder and "mask" in half.off:
        title, about = "Multi-Head Attention (mask off)", "unmasked"
    yield from _before(half, "attention_norm", [block.attended for block in blocks])
    yield _attention(half, "attention", title, about, own)
    yield _add(half, "attended", [block.attended for block in blocks], list(own))
    if crossed:
        cross = [block.cross for block in blocks]
        yield from _before(half, "cross_norm", [block.crossed for block in blocks])
        yield _attention(half, "cross", "Encoder-Decoder Attention", "cross", cross)
        yield _add(half, "crossed", [block.crossed for block in blocks], list(cross))
    yield from _before(half, "ffn_norm", [block.fed for block in blocks])
    yield _ffn(half)
    yield _add(half, "fed", [block.fed for block in blocks], [block.ffn for block in blocks])
    if not isinstance(half.stack.norm, nn.Identity):
        yield _norm(half, "final_norm", "out", [half.stack.norm], -1)


def _before(half: _StackBoxes, name: str, residuals: list[Residual]) -> Iterator[Box]:
    if residuals[0].first:
        yield _norm(half, name, "layer", [one.norm for one in residuals], -1)


def _attention(half: _StackBoxes, name: str, title: str, about: str, modules: list[Attention]) -> Box:
    project = modules[0].project
    fused = isinstance(project, FusedProjection)
    code = snippets.attention(
        heads=modules[0].heads,
        fused=fused,
        bias=_linear(modules[0].output).bias is not None,
        causal=modules[0].causal and "mask" not in half.off,
        scale=modules[0].scale,
        scaled="scaling" not in half.off,
    )
    looked = half.part if fused else "encoder"
    shown: list[TensorSpec] = [("q", half.part, None), ("k", looked, None), ("v", looked, None)]
    shown += [("scores", half.part, looked), ("weights", half.part, looked), ("out", half.part, None)]
    steps = []
    for module in modules:
        call = half.calls[module][-1]
        given = [half.of("x", call.given[0])]
        if not fused:
            given.append(NamedTensor("memory", call.given[2][0], "encoder"))
        output = _linear(module.output)
        weights = {**_projections(module.project), "W_o": output.weight, "b_o": output.bias}
        steps.append(run_box(code, given, weights, call.result[0], shown=shown))
    return replace(half.box(name, "attention", "layer", title, code, about=about), steps=tuple(steps))


def _projections(project: nn.Module) -> dict[str, Tensor | None]:
    if isinstance(project, SeparateProjections):
        three = {"q": project.query, "k": project.key, "v": project.value}
        linears = {name: _linear(one) for name, one in three.items()}
        weights: dict[str, Tensor | None] = {f"W_{name}": one.weight for name, one in linears.items()}
        return weights | {f"b_{name}": one.bias for name, one in linears.items()}
    one = _linear(project)
    return {"W_qkv": one.weight, "b_qkv": one.bias}


def _add(half: _StackBoxes, name: str, residuals: list[Residual], branches: list[nn.Module]) -> Box:
    first, on = residuals[0].first, "residual" not in half.off
    code = snippets.add(eps=None if first else _normed(residuals[0].norm).eps, residual=on)
    steps = []
    for residual, branch in zip(residuals, branches, strict=True):
        call = half.calls[residual][-1]
        given = [half.of("x", call.given[0]), half.of("sublayer", half.calls[branch][-1].result)]
        given = given if on else given[1:]
        shown = [("total", half.part, None), ("out", half.part, None)]
        weights = {} if first else _gain(residual.norm)
        steps.append(run_box(code, given, weights, call.result[0], shown=shown))
    title, about = ("Add", "plain add") if first else ("Add & Norm", "add")
    about = about if on else "no add"
    return replace(half.box(name, "add", "layer", title, code, about=about), steps=tuple(steps))


def _norm(half: _StackBoxes, name: str, group: BoxGroup, norms: list[nn.Module], number: int) -> Box:
    code = snippets.norm(_normed(norms[0]).eps)
    steps = []
    for one in norms:
        call = half.calls[one][number]
        shown = [("mean", half.part, None), ("variance", half.part, None), ("out", half.part, None)]
        steps.append(run_box(code, [half.of("x", call.given[0])], _gain(one), call.result[0], shown=shown))
    return replace(half.box(name, "norm", group, "Norm", code), steps=tuple(steps))


def _ffn(half: _StackBoxes) -> Box:
    modules = [block.ffn for block in half.blocks]
    activation = next(name for name, function in ACTIVATIONS.items() if function is modules[0].activation)
    code = snippets.feed_forward(activation)
    steps = []
    for one in modules:
        call = half.calls[one][-1]
        weights = {"W_1": one.inner.weight, "b_1": one.inner.bias, "W_2": one.outer.weight, "b_2": one.outer.bias}
        shown = [("hidden", half.part, None), ("out", half.part, None)]
        steps.append(run_box(code, [half.of("x", call.given[0])], weights, call.result[0], shown=shown))
    return replace(half.box("ffn", "ffn", "layer", "Feed Forward", code), steps=tuple(steps))


def _head(
    part: str, hidden: Tensor, logits: Tensor, embedding: Tensor, head: MaskedHead | None, calls: ModuleCalls
) -> Iterator[Box]:
    x = NamedTensor("x", hidden, part)
    if head is not None:
        activation = next(name for name, function in ACTIVATIONS.items() if function is head.activation)
        code = snippets.transform(activation, head.norm.eps)
        weights = {"W": head.linear.weight, "b": head.linear.bias, **_gain(head.norm)}
        shown = [("hidden", part, None), ("out", part, None)]
        one = run_box(code, [x], weights, calls[head.norm][-1].result[0], shown=shown)
        yield Box(f"{part}.transform", part, "out", "ffn", "Layer & Norm", ABOUT["transform"], code, (one,))
        x = replace(one.values[-1], name="x")
    code = snippets.linear(bias=head is not None)
    one = run_box(
        code, [x], {"E": embedding, "b": None if head is None else head.bias}, logits, shown=[("out", part, None)]
    )
    yield Box(f"{part}.linear", part, "out", "linear", "Linear", ABOUT["linear"], code, (one,))
    code = snippets.softmax()
    scores = NamedTensor("logits", logits, part)
    one = run_box(code, [scores], {}, logits.softmax(-1), shown=[("out", part, None)])
    yield Box(f"{part}.softmax", part, "out", "softmax", "Softmax", ABOUT["softmax"], code, (one,))


def _gain(norm: nn.Module) -> dict[str, Tensor | None]:
    found = _normed(norm)
    return {"gain": found.weight, "bias": found.bias}


def _normed(norm: nn.Module) -> nn.LayerNorm:
    assert isinstance(norm, nn.LayerNorm)
    return norm


def _linear(module: nn.Module) -> nn.Linear:
    assert isinstance(module, nn.Linear)
    return module
