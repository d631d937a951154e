"""`with record(model) as tape` records attention and hidden states of a model in this thread.

The fast kernels stay in use: the tape keeps queries and keys and rebuilds a map on request, so a recorded forward pass
computes the same results. Only an `edit`, which changes maps, needs the explicit path. Other threads are not recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.nn.masks import Layout, Packed
from regard.nn.tape import NOTHING, AppliedEdits, AttentionCall, Edit, Site, Tape

if TYPE_CHECKING:
    from regard.nn.attention import Attention

__all__ = ["ablate_heads", "is_recording", "record", "record_attention", "record_hidden_state"]


class _Here(threading.local):
    tapes: tuple[Tape, ...] = ()


_here = _Here()


def is_recording() -> bool:
    """Whether this thread is recording."""
    return bool(_here.tapes)


def record_attention(
    module: Attention, query: Tensor, key: Tensor, queries: Packed | None, keys: Layout, bias: Tensor | None
) -> AppliedEdits | None:
    """Called by every attention: records the call and returns the edits to apply, if any."""
    if torch.compiler.is_compiling() or not _here.tapes:
        return None
    found = [(tape, site) for tape in _here.tapes if (site := tape.sites.get(module)) is not None]
    wanted = [(tape.edit, site) for tape, site in found if tape.edit is not None]
    edits = AppliedEdits(wanted) if wanted or (found and module.score is not None) else None
    for tape, site in found:
        tape.calls.setdefault(site, []).append(AttentionCall(module, query, key, queries, keys, bias, edits))
    return edits


def record_hidden_state(module: nn.Module, number: int, x: Tensor, layout: Layout) -> None:
    """Called by every encoder and decoder for each of its hidden states; 0 is the embeddings' output."""
    if torch.compiler.is_compiling() or not _here.tapes:
        return
    for tape in _here.tapes:
        part = tape.parts.get(module)
        if part is not None:
            tape.states.setdefault(part, {}).setdefault(number, []).append((x, layout))


@contextmanager
def record(model: nn.Module, *, edit: Edit | None = None) -> Iterator[Tape]:
    """Record what `model` does in this thread while the block runs; `edit` may change any attention map on the way.

    A compiled model runs uncompiled in this thread for that time; other threads keep the compiled one.
    """
    plain = getattr(model, "_orig_mod", model)
    tape = Tape(_sites(plain), _parts(plain), edit)
    if isinstance(edit, HeadAblation):
        edit.check(tape.sites)
    before = _here.tapes
    with _uncompiled(model):
        _here.tapes = (*before, tape)
        try:
            yield tape
        finally:
            _here.tapes = before
        if edit is not None and not tape.calls:
            raise RuntimeError(f"the edit was never used: the tape holds {NOTHING}")


@dataclass(frozen=True)
class HeadAblation:
    """An edit that zeroes heads; `check` refuses heads that the model does not have."""

    heads: frozenset[tuple[int, int]]
    kind: str
    part: str | None

    def __call__(self, weights: Tensor, site: Site) -> Tensor:
        gone = [head for layer, head in self.heads if layer == site.layer]
        if not gone or not self._concerns(site):
            return weights
        keep = torch.ones(weights.shape[1], device=weights.device, dtype=weights.dtype)
        keep[gone] = 0
        return weights * keep[:, None, None]

    def check(self, sites: Mapping[Attention, Site]) -> None:
        heads = {site.layer: module.heads for module, site in sites.items() if self._concerns(site)}
        for layer, head in sorted(self.heads):
            if layer not in heads or not 0 <= head < heads[layer]:
                has = f"layers 0 to {max(heads)}, each of {heads[0]} heads from 0" if heads else "none"
                where = f"{self.kind} attention" + (f" of the {self.part}" if self.part else "")
                raise ValueError(f"no head {head} in layer {layer} to ablate: of {where} the model has {has}")

    def _concerns(self, site: Site) -> bool:
        return site.kind == self.kind and self.part in (None, site.part)


def ablate_heads(heads: Collection[tuple[int, int]], *, kind: str = "self", part: str | None = None) -> HeadAblation:
    """An edit that zeroes the attention weights of heads, given as (layer, head) from 0."""
    for pair in heads:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"heads are pairs (layer, head) in a list, such as [(3, 1)]; got {pair!r} in {heads!r}")
    return HeadAblation(frozenset((layer, head) for layer, head in heads), kind, part)


def _sites(model: nn.Module) -> dict[Attention, Site]:
    """A module's path is its address: `decoder.layers.3.cross` is layer 3's cross-attention in the decoder."""
    from regard.nn.attention import Attention

    found: dict[Attention, Site] = {}
    for path, module in model.named_modules():
        if isinstance(module, Attention):
            *above, name = path.split(".")
            layer = next((int(word) for word in reversed(above) if word.isdigit()), 0)
            found[module] = Site(_part(path), "cross" if name == "cross" else "self", layer)
    return found


def _part(path: str) -> str:
    first = path.split(".")[0]
    return "" if first == "layers" else first


def _parts(model: nn.Module) -> dict[nn.Module, str]:
    return {module: _part(path) for path, module in model.named_modules()}


_lock = threading.Lock()


@contextmanager
def _uncompiled(model: nn.Module) -> Iterator[None]:
    """Run compiled modules uncompiled in recording threads."""
    wrapped: list[tuple[nn.Module, str]] = []
    with _lock:
        for module in model.modules():
            if "_orig_mod" in module._modules:
                _detour(module, "forward", module._modules["_orig_mod"])
                wrapped.append((module, "forward"))
            if getattr(module, "_compiled_call_impl", None) is not None:
                _detour(module, "_compiled_call_impl", module._call_impl)
                wrapped.append((module, "_compiled_call_impl"))
    try:
        yield
    finally:
        with _lock:
            for module, name in wrapped:
                _end_detour(module, name)


class _Detour:
    """A compiled call that runs uncompiled in recording threads; counts its users."""

    def __init__(self, compiled: Any, plain: Any) -> None:
        self.compiled, self.plain, self.users = compiled, plain, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self.plain if _here.tapes else self.compiled)(*args, **kwargs)


def _detour(module: nn.Module, name: str, plain: Any) -> None:
    current = module.__dict__[name]
    if not isinstance(current, _Detour):
        current = _Detour(current, plain)
        module.__dict__[name] = current
    current.users += 1


def _end_detour(module: nn.Module, name: str) -> None:
    current = module.__dict__[name]
    current.users -= 1
    if not current.users:
        module.__dict__[name] = current.compiled
