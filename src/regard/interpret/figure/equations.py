"""The equations of each box of Figure 1 as a few lines of PyTorch, which the page shows and which run as they are.

Each leaves its result in `out`; `x`, `W_o`, `E` and so on are the inputs and parameters. Removing a component changes
the lines as it changes the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F

NORM = """mean = {x}.mean(-1, keepdim=True)
variance = {x}.var(-1, keepdim=True, correction=0)
out = ({x} - mean) / torch.sqrt(variance + {eps:g}) * gain + bias"""
ACTIVATIONS = {
    "relu": "F.relu({})",
    "gelu": "F.gelu({})",
    "gelu-tanh": 'F.gelu({}, approximate="tanh")',
    "silu": "F.silu({})",
}


def run(code: str, names: Mapping[str, object]) -> dict[str, object]:
    """Run the code and return all of its variables."""
    scope: dict[str, object] = {"torch": torch, "F": F, "math": math, **names}
    exec(code, scope)  # lines of this file only: no user input is part of them
    return scope


def embedding(*, scaled: bool, segments: bool) -> str:
    code = "out = E[ids]" + (" * math.sqrt(E.shape[1])" if scaled else "")
    return code + (" + S[0]" if segments else "")


def positions(arrangement: str | None, *, offset: int = 0, on: bool = True) -> str:
    """`arrangement` of the sinusoids, or None for learned vectors, of which the first `offset` are unused."""
    if not on:
        return "out = x"
    if arrangement is None:
        start = f"{offset} : {offset} + " if offset else ": "
        return f"p = P[{start}len(x)]\nout = x + p"
    join = {
        "interleaved": "torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)",
        "halves": "torch.cat([angle.sin(), angle.cos()], dim=-1)",
    }[arrangement]
    return (
        "t = torch.arange(len(x), dtype=torch.float64)[:, None]\n"
        "w = 10000 ** (-torch.arange(0, x.shape[1], 2, dtype=torch.float64) / x.shape[1])\n"
        f"angle = t * w\np = {join}.to(x)\nout = x + p"
    )


def attention(*, heads: int, fused: bool, bias: bool, causal: bool, scale: float | None, scaled: bool) -> str:
    """`fused`: one matrix for queries, keys and values; otherwise three, with keys and values of a memory."""
    plus = {name: f" + b_{name}" if bias else "" for name in ("qkv", "q", "k", "v", "o")}
    if fused:
        lines = [f"q, k, v = (x @ W_qkv.T{plus['qkv']}).chunk(3, dim=-1)"]
    else:
        lines = [f"q = x @ W_q.T{plus['q']}", *(f"{one} = memory @ W_{one}.T{plus[one]}" for one in "kv")]
    lines.append(f"q, k, v = (one.unflatten(-1, ({heads}, -1)).transpose(0, 1) for one in (q, k, v))")
    divided = "" if not scaled else " / math.sqrt(q.shape[-1])" if scale is None else f" * {scale:g}"
    lines.append(f"scores = q @ k.mT{divided}")
    if causal:
        lines.append("future = torch.ones_like(scores, dtype=torch.bool).triu(1)")
        lines.append("scores = scores.masked_fill(future, -math.inf)")
    lines.append("weights = scores.softmax(dim=-1)")
    lines.append("z = weights @ v")
    lines.append("concatenated = z.transpose(0, 1).flatten(1)")
    lines.append(f"out = concatenated @ W_o.T{plus['o']}")
    return "\n".join(lines)


def norm(eps: float) -> str:
    return NORM.format(x="x", eps=eps)


def add(*, eps: float | None, residual: bool) -> str:
    """Residual and norm; without `eps` the residual alone, for pre-norm models."""
    if eps is None:
        return "out = x + sublayer" if residual else "out = sublayer"
    return ("total = x + sublayer\n" if residual else "total = sublayer\n") + NORM.format(x="total", eps=eps)


def feed_forward(activation: str) -> str:
    return f"hidden = {ACTIVATIONS[activation].format('x @ W_1.T + b_1')}\nout = hidden @ W_2.T + b_2"


def transform(activation: str, eps: float) -> str:
    return f"hidden = {ACTIVATIONS[activation].format('x @ W.T + b')}\n{NORM.format(x='hidden', eps=eps)}"


def linear(*, bias: bool) -> str:
    return "out = x @ E.T" + (" + b" if bias else "")


def softmax() -> str:
    return (
        "powers = torch.exp(logits - logits.max(-1, keepdim=True).values)\n"
        "out = powers / powers.sum(-1, keepdim=True)\nbest = out.argmax(-1)"
    )
