"""The boxes of Figure 1: their lines of code, and the tensors that pass through them in every layer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from torch import Tensor, nn

from regard.interpret.figure import equations
from regard.interpret.hooks import forward_hooks
from regard.models.bert import MaskedLMHead
from regard.models.family import can, family_of
from regard.nn.attention import FusedProjection, SeparateProjections
from regard.nn.block import ACTIVATIONS, Block, Residual
from regard.nn.embedding import LearnedPositions, SinusoidalPositions, TextEmbedding
from regard.nn.stack import Stack

BoxKind = Literal["embedding", "positions", "norm", "attention", "add", "ffn", "linear", "softmax"]
BoxGroup = Literal["in", "layer", "out"]


class ModuleCall(NamedTuple):
    """The arguments and the result of a module."""

    args: tuple[Any, ...]
    result: Any


TensorSpec: TypeAlias = tuple[str, str | None, str | None]  # a name in the code, and the halves of its rows and columns
ModuleCalls: TypeAlias = Mapping[nn.Module, Sequence[ModuleCall]]


@dataclass(frozen=True, eq=False)
class NamedTensor:
    """A tensor with its name in the code. `rows` and `columns` are the halves whose tokens they stand for, if any."""

    name: str
    tensor: Tensor
    rows: str | None = None
    columns: str | None = None


@dataclass(frozen=True, eq=False)
class BoxPass:
    """One pass through a box: its tensors, and the largest difference between the code's result and the model's."""

    tensors: tuple[NamedTensor, ...]
    parameters: Mapping[str, tuple[int, ...]]
    difference: float

    def __getitem__(self, name: str) -> Tensor:
        """The tensor with this name in the code."""
        return next(one.tensor for one in self.tensors if one.name == name)


@dataclass(frozen=True, eq=False)
class Box:
    """`name` is unique in the figure, such as decoder.cross. There is one pass for each layer, or a single one."""

    name: str
    part: str
    group: BoxGroup
    kind: BoxKind
    title: str
    about: str
    code: str
    passes: tuple[BoxPass, ...] = field(default=())

    def in_layer(self, layer: int) -> BoxPass:
        """The pass in a layer, from 1; the only one of a box outside the layers."""
        return self.passes[min(layer, len(self.passes)) - 1]


@contextmanager
def capture_calls(model: nn.Module) -> Iterator[dict[nn.Module, list[ModuleCall]]]:
    """Capture the arguments and results of every module of the model in this thread while the block runs."""
    calls: dict[nn.Module, list[ModuleCall]] = {}

    def capture(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        calls.setdefault(module, []).append(ModuleCall(args, result))

    with forward_hooks((module, capture) for module in model.modules()):
        yield calls


def run_box(
    code: str,
    inputs: Sequence[NamedTensor],
    parameters: Mapping[str, Tensor | None],
    recorded: Tensor | None,
    *,
    tensors: Sequence[TensorSpec],
) -> BoxPass:
    """Run the code on the inputs of the model's own module; `tensors` names those of its variables to keep.

    The result `out` is the one that the model `recorded`, or the code's if the model has no such tensor.
    """
    weights = {name: tensor for name, tensor in parameters.items() if tensor is not None}
    scope = equations.run(code, {**{one.name: one.tensor for one in inputs}, **weights})
    named = list(inputs)
    for name, rows, columns in tensors:
        tensor = scope.get(name)
        if isinstance(tensor, Tensor):
            tensor = recorded if name == "out" and recorded is not None else tensor.detach()
            named.append(NamedTensor(name, tensor, rows, columns))
    out = scope["out"]
    assert isinstance(out, Tensor)
    difference = 0.0 if recorded is None else float((out - recorded).abs().max())
    return BoxPass(tuple(named), {name: tuple(tensor.shape) for name, tensor in weights.items()}, difference)


ABOUT: dict[str, str] = {
    "embedding": "Each token's row of the embedding matrix: the product of its one-hot vector with it.",
    "positions": "A vector for each position is added, not concatenated: attention by itself has no notion of order.",
    "attention": "Every token compares its query with all keys, and takes the weighted average of their values. The "
    "averages z of the heads are concatenated and multiplied by W_o.",
    "masked": "Every token attends to itself and earlier tokens. Later ones are masked: it should predict them.",
    "unmasked": "The mask is removed: every token also attends to those after it, which it should predict.",
    "cross": "Queries come from the decoder, keys and values from the encoder's output, the same for every layer.",
    "add": "The input of the sublayer is added to its output; then each vector is normalized.",
    "no add": "The residual is removed: only the output of the sublayer remains.",
    "no positions": "Removed: nothing is added.",
    "plain add": "The input of the norm and the sublayer is added to their output.",
    "norm": "Each vector is normalized to mean 0 and variance 1, then scaled and shifted per dimension.",
    "ffn": "Two linear layers with an activation between them, for each token separately.",
    "transform": "The additional layer of BERT's masked-LM head.",
    "linear": "A logit for each token of the vocabulary: the product with its embedding.",
    "softmax": "Logits to probabilities, and the likeliest token.",
}


@dataclass(frozen=True, eq=False)
class _StackBoxes:
    """One half of the figure: its embedding and which call of it to use, its layers, and the removed components."""

    part: str
    embedding: TextEmbedding
    call: int
    stack: Stack
    calls: ModuleCalls
    without: Collection[str]
    has_both_halves: bool

    def box(self, name: str, kind: BoxKind, group: BoxGroup, title: str, code: str, *, about: str | None = None) -> Box:
        return Box(f"{self.part}.{name}", self.part, group, kind, title, ABOUT[about or kind], code)

    def tensor(self, name: str, tensor: Tensor) -> NamedTensor:
        return NamedTensor(name, tensor[0], self.part)

    @property
    def blocks(self) -> list[Block]:
        return [*self.stack.layers]  # others are refused


def model_boxes(model: nn.Module, calls: ModuleCalls, logits: Tensor, without: Collection[str]) -> tuple[Box, ...]:
    """The boxes of a model whose single forward pass was captured, and which returned `logits` (T, V)."""
    boxes: list[Box] = []
    for half in _halves(model, calls, without):
        boxes += _inputs(half)
        boxes += _layers(half)
    last = boxes[-1]
    hidden = next(one.tensor for one in last.passes[-1].tensors if one.name == "out")
    head = model.mlm_head if can(model, "masked-lm") else None
    bias = getattr(model, "final_logits_bias", None)
    bias = head.bias if head is not None else None if bias is None else bias[0]
    return (*boxes, *_head(last.part, hidden, logits, half.embedding.tokens.weight, bias, head, calls))


def _halves(model: Any, calls: ModuleCalls, without: Collection[str]) -> Iterator[_StackBoxes]:
    family = family_of(model)
    assert family is not None
    both = len(family.stacks) == 2
    for part in family.stacks:
        is_target = both and part == "decoder"
        embedding = model.decoder_embedding if is_target else model.embedding
        yield _StackBoxes(part, embedding, -1 if is_target else 0, getattr(model, part), calls, without, both)


def _inputs(half: _StackBoxes) -> Iterator[Box]:
    module = half.embedding
    call = half.calls[module][half.call]
    ids, out = call.args[0][0], call.result[0]
    # The input of the norm, if there is one, is the sum of the vectors; otherwise the result is.
    total = out if module.norm is None else half.calls[module.norm][half.call].args[0][0]
    title = "Output Embedding" if half.has_both_halves and half.part == "decoder" else "Input Embedding"
    code = equations.embedding(scaled=module.scale != 1.0, segments=module.segments is not None)
    weights = {"E": module.tokens.weight, "S": None if module.segments is None else module.segments.weight}
    positions = module.positions
    # The model has no tensor between the two sums, so subtract what it added last.
    before = total if positions is None else total - half.calls[positions][half.call].result
    first = run_box(code, [NamedTensor("ids", ids, half.part)], weights, before, tensors=[("out", half.part, None)])
    yield replace(half.box("embedding", "embedding", "in", title, code), passes=(first,))
    if positions is not None:
        on = "positions" not in half.without
        learned = positions if isinstance(positions, LearnedPositions) else None
        arrangement = positions.arrangement if isinstance(positions, SinusoidalPositions) else None
        code = equations.positions(arrangement, offset=learned.offset if learned else 0, on=on)
        specs = [("p", half.part, None), ("out", half.part, None)]
        x = replace(first.tensors[-1], name="x")
        one = run_box(code, [x], {"P": learned.weight if learned and on else None}, total, tensors=specs)
        about = "positions" if on else "no positions"
        yield replace(half.box("positions", "positions", "in", "Positional Encoding", code, about=about), passes=(one,))
    if module.norm is not None:
        yield _norm(half, "embedding_norm", "in", [module.norm], half.call)


def _layers(half: _StackBoxes) -> Iterator[Box]:
    blocks = half.blocks
    own, crossed = [block.attention for block in blocks], blocks[0].has_cross_attention
    decoder = half.part == "decoder"
    title, about = ("Masked Multi-Head Attention", "masked") if decoder else ("Multi-Head Attention", "attention")
    if decoder and "mask" in half.without:
        title, about = "Multi-Head Attention (mask off)", "unmasked"
    yield from _pre_norm(half, "attention_norm", [block.attention_residual for block in blocks])
    yield _attention(half, "attention", title, about, own)
    yield _add(half, "attention_residual", [block.attention_residual for block in blocks], list(own))
    if crossed:
        cross = [block.cross for block in blocks]
        yield from _pre_norm(half, "cross_norm", [block.cross_residual for block in blocks])
        yield _attention(half, "cross", "Encoder-Decoder Attention", "cross", cross)
        yield _add(half, "cross_residual", [block.cross_residual for block in blocks], list(cross))
    yield from _pre_norm(half, "ffn_norm", [block.ffn_residual for block in blocks])
    yield _ffn(half)
    yield _add(half, "ffn_residual", [block.ffn_residual for block in blocks], [block.ffn for block in blocks])
    if not isinstance(half.stack.norm, nn.Identity):
        yield _norm(half, "final_norm", "out", [half.stack.norm], -1)


def _pre_norm(half: _StackBoxes, name: str, residuals: list[Residual]) -> Iterator[Box]:
    if residuals[0].first:
        yield _norm(half, name, "layer", [one.norm for one in residuals], -1)


def _attention(half: _StackBoxes, name: str, title: str, about: str, modules: list[Any]) -> Box:
    project = modules[0].project
    fused = isinstance(project, FusedProjection)
    code = equations.attention(
        heads=modules[0].heads,
        fused=fused,
        bias=modules[0].output.bias is not None,
        causal=modules[0].causal and "mask" not in half.without,
        scale=modules[0].scale,
        scaled="scaling" not in half.without,
    )
    memory_part = half.part if fused else "encoder"
    specs: list[TensorSpec] = [("q", half.part, None), ("k", memory_part, None), ("v", memory_part, None)]
    specs += [("scores", half.part, memory_part), ("weights", half.part, memory_part)]
    specs += [(name, half.part, None) for name in ("z", "concatenated", "out")]
    passes = []
    for module in modules:
        call = half.calls[module][-1]
        inputs = [half.tensor("x", call.args[0])]
        if not fused:
            inputs.append(NamedTensor("memory", call.args[1].memory[0], "encoder"))
        weights = {**_projections(module.project), "W_o": module.output.weight, "b_o": module.output.bias}
        passes.append(run_box(code, inputs, weights, call.result[0], tensors=specs))
    return replace(half.box(name, "attention", "layer", title, code, about=about), passes=tuple(passes))


def _projections(project: Any) -> dict[str, Tensor | None]:
    if isinstance(project, SeparateProjections):
        linears: dict[str, Any] = {"q": project.query, "k": project.key, "v": project.value}
        weights = {f"W_{name}": one.weight for name, one in linears.items()}
        return weights | {f"b_{name}": one.bias for name, one in linears.items()}
    return {"W_qkv": project.weight, "b_qkv": project.bias}


def _add(half: _StackBoxes, name: str, residuals: list[Any], branches: list[nn.Module]) -> Box:
    first, on = residuals[0].first, "residual" not in half.without
    code = equations.add(eps=None if first else residuals[0].norm.eps, residual=on)
    passes = []
    for residual, branch in zip(residuals, branches, strict=True):
        call = half.calls[residual][-1]
        inputs = [half.tensor("x", call.args[0]), half.tensor("sublayer", half.calls[branch][-1].result)]
        inputs = inputs if on else inputs[1:]
        specs = [("total", half.part, None), ("out", half.part, None)]
        weights = {} if first else _gain(residual.norm)
        passes.append(run_box(code, inputs, weights, call.result[0], tensors=specs))
    title, about = ("Add", "plain add") if first else ("Add & Norm", "add")
    about = about if on else "no add"
    return replace(half.box(name, "add", "layer", title, code, about=about), passes=tuple(passes))


def _norm(half: _StackBoxes, name: str, group: BoxGroup, norms: list[Any], number: int) -> Box:
    code = equations.norm(norms[0].eps)
    passes = []
    for one in norms:
        call = half.calls[one][number]
        specs = [("mean", half.part, None), ("variance", half.part, None), ("out", half.part, None)]
        passes.append(run_box(code, [half.tensor("x", call.args[0])], _gain(one), call.result[0], tensors=specs))
    return replace(half.box(name, "norm", group, "Norm", code), passes=tuple(passes))


def _ffn(half: _StackBoxes) -> Box:
    modules = [block.ffn for block in half.blocks]
    activation = next(name for name, function in ACTIVATIONS.items() if function is modules[0].activation)
    code = equations.feed_forward(activation)
    passes = []
    for one in modules:
        call = half.calls[one][-1]
        weights = {"W_1": one.inner.weight, "b_1": one.inner.bias, "W_2": one.outer.weight, "b_2": one.outer.bias}
        specs = [("hidden", half.part, None), ("out", half.part, None)]
        passes.append(run_box(code, [half.tensor("x", call.args[0])], weights, call.result[0], tensors=specs))
    return replace(half.box("ffn", "ffn", "layer", "Feed Forward", code), passes=tuple(passes))


def _head(
    part: str,
    hidden: Tensor,
    logits: Tensor,
    embedding: Tensor,
    bias: Tensor | None,
    head: MaskedLMHead | None,
    calls: ModuleCalls,
) -> Iterator[Box]:
    x = NamedTensor("x", hidden, part)
    if head is not None:
        activation = next(name for name, function in ACTIVATIONS.items() if function is head.activation)
        code = equations.transform(activation, head.norm.eps)
        weights = {"W": head.linear.weight, "b": head.linear.bias, **_gain(head.norm)}
        specs = [("hidden", part, None), ("out", part, None)]
        one = run_box(code, [x], weights, calls[head.norm][-1].result[0], tensors=specs)
        yield Box(f"{part}.transform", part, "out", "ffn", "Layer & Norm", ABOUT["transform"], code, (one,))
        x = replace(one.tensors[-1], name="x")
    code = equations.linear(bias=bias is not None)
    one = run_box(code, [x], {"E": embedding, "b": bias}, logits, tensors=[("out", part, None)])
    yield Box(f"{part}.linear", part, "out", "linear", "Linear", ABOUT["linear"], code, (one,))
    code = equations.softmax()
    scores = NamedTensor("logits", logits, part)
    one = run_box(code, [scores], {}, logits.softmax(-1), tensors=[("out", part, None)])
    yield Box(f"{part}.softmax", part, "out", "softmax", "Softmax", ABOUT["softmax"], code, (one,))


def _gain(norm: Any) -> dict[str, Tensor | None]:
    return {"gain": norm.weight, "bias": norm.bias}
