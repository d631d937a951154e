"""Looking inside: `with record(model) as tape` keeps what the model's attentions and layers see in this thread.

The fast kernels stay in use. The tape holds queries and keys, which exist anyway, and rebuilds a map when it is asked
for, so a recorded forward gives the same numbers as any other. Only an `edit`, which changes maps, needs the explicit
path. Other threads are not recorded and not slowed down. Knows nothing of text.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.nn.masks import Layout, Packed, Padded, allowed, padded, runs

if TYPE_CHECKING:
    from regard.nn.attention import Attention

__all__ = ["Edit", "Reading", "Site", "Tape", "knock_out", "record"]


@dataclass(frozen=True)
class Site:
    """An attention's address: `part` of the model (encoder, decoder), `kind` (self, cross) and `layer` from 0."""

    part: str
    kind: str
    layer: int


Edit = Callable[[Tensor, Site], Tensor]  # weights (B, H, T, S) and where they are -> the weights to use instead


class Edited:
    """An edit bound to its site, which also keeps what it made."""

    def __init__(self, edit: Edit, site: Site) -> None:
        self.edit, self.site = edit, site
        self.kept: list[Tensor] = []

    def __call__(self, weights: Tensor) -> Tensor:
        changed = self.edit(weights, self.site)
        if changed.shape != weights.shape:
            raise ValueError(f"the edit at {self.site} gave shape {tuple(changed.shape)}, not {tuple(weights.shape)}")
        self.kept.append(changed)
        return changed


@dataclass(frozen=True, eq=False)
class Reading:
    """One call of one attention. Queries and keys are (B, H, T, D) where padded and (N, H, D) where packed."""

    attention: Attention
    query: Tensor
    key: Tensor
    queries: Packed | None
    keys: Layout
    bias: Tensor | None
    edited: Edited | None

    def weights(self) -> Tensor:
        """The map (B, H, T, S), after the edit if there is one; places without a token are 0 where packed."""
        if not isinstance(self.keys, Packed):
            return self.edited.kept[0] if self.edited else self._map(self.query, self.key, self.keys, self.bias)
        assert self.queries is not None
        longest = max(self.queries.lengths), max(self.keys.lengths)
        pieces = []
        for number, run in enumerate(runs(self.queries, self.keys)):
            if self.edited:
                piece = self.edited.kept[number]
            else:
                q, k = run.of_queries(self.query).transpose(1, 2), run.of_keys(self.key).transpose(1, 2)
                bias = None if self.bias is None else self.bias[..., : run.queries, : run.keys]
                piece = self._map(q, k, Padded(), bias)
            room = (0, longest[1] - run.keys, 0, longest[0] - run.queries)
            pieces.append(torch.nn.functional.pad(piece, room))
        return torch.cat(pieces)

    def _map(self, query: Tensor, key: Tensor, keys: Padded, bias: Tensor | None) -> Tensor:
        from regard.nn.attention import mix

        mask = allowed(keys, query, query.shape[2], key.shape[2], causal=self.attention.causal)
        scale = self.attention.factor(query)
        return mix(query, key, scale=scale, score=self.attention.score, bias=bias, mask=mask)

    def vectors(self, which: str) -> Tensor:
        """Queries or keys as (B, H, T, D)."""
        x = self.query if which == "query" else self.key
        layout = self.queries if which == "query" else self.keys
        return padded(x, layout)[0].transpose(1, 2) if isinstance(layout, Packed) else x


@dataclass(eq=False)
class Tape:
    """What was seen. One `with` records one run: a forward, or a decoding whose steps are joined along the queries."""

    sites: dict[nn.Module, Site]
    parts: dict[nn.Module, str]
    edit: Edit | None = None
    readings: dict[Site, list[Reading]] = field(default_factory=dict)
    states: dict[str, dict[int, list[tuple[Tensor, Layout]]]] = field(default_factory=dict)

    def attention(self, kind: str = "self", part: str | None = None) -> list[Tensor]:
        """The attention maps (B, H, T, S), one a layer, before dropout and after the edit."""
        return [self._join([r.weights() for r in self.readings[s]]) for s in self._chosen(kind, part)]

    def queries(self, kind: str = "self", part: str | None = None) -> list[Tensor]:
        """The queries (B, H, T, D), one tensor a layer."""
        return [torch.cat([r.vectors("query") for r in self.readings[s]], dim=2) for s in self._chosen(kind, part)]

    def keys(self, kind: str = "self", part: str | None = None) -> list[Tensor]:
        """The keys (B, H, S, D), one tensor a layer, as the last step saw them."""
        return [self.readings[s][-1].vectors("key") for s in self._chosen(kind, part)]

    def hidden(self, part: str | None = None) -> list[Tensor]:
        """The hidden states (B, T, W): first the embeddings, then each layer's output, the final norm in the last."""
        name = part or next(iter(self.states), "")
        if name not in self.states:
            known = list(self.states) or "nothing"
            raise KeyError(f"no hidden states of {part or 'any part'} on the tape; it has {known}")
        layers = self.states[name]
        return [torch.cat([padded(x, layout)[0] for x, layout in layers[i]], dim=1) for i in sorted(layers)]

    def _chosen(self, kind: str, part: str | None) -> list[Site]:
        found = sorted((s for s in self.readings if s.kind == kind and part in (None, s.part)), key=lambda s: s.layer)
        known = sorted({(s.part, s.kind) for s in self.readings})
        if not found:
            raise KeyError(f"no {kind} attention of {part or 'any part'} on the tape; it has {known or 'nothing'}")
        if len({s.part for s in found}) > 1:
            raise KeyError(f"{kind} attention is in several parts, name one with part=: {known}")
        return found

    @staticmethod
    def _join(maps: list[Tensor]) -> Tensor:
        longest = max(m.shape[-1] for m in maps)
        return torch.cat([torch.nn.functional.pad(m, (0, longest - m.shape[-1])) for m in maps], dim=2)


class _Here(threading.local):
    tapes: tuple[Tape, ...] = ()


_here = _Here()


def attention(
    module: Attention, query: Tensor, key: Tensor, queries: Packed | None, keys: Layout, bias: Tensor | None
) -> Edited | None:
    """Called by every attention; keeps a reading where this thread records, and returns the edit to apply, if any."""
    if torch.compiler.is_compiling() or not _here.tapes:
        return None
    edited = None
    for tape in _here.tapes:
        site = tape.sites.get(module)
        if site is not None:
            edited = Edited(tape.edit, site) if tape.edit is not None else edited
            tape.readings.setdefault(site, []).append(Reading(module, query, key, queries, keys, bias, edited))
    return edited


def hidden(module: nn.Module, number: int, x: Tensor, layout: Layout) -> None:
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
    before = _here.tapes
    with _uncompiled(model):
        _here.tapes = (*before, tape)
        try:
            yield tape
        finally:
            _here.tapes = before


def knock_out(heads: Collection[tuple[int, int]], *, kind: str = "self", part: str | None = None) -> Edit:
    """An edit that silences heads, given as (layer, head) from 0: their weights, and so what they add, become zero."""

    def edit(weights: Tensor, site: Site) -> Tensor:
        gone = [head for layer, head in heads if layer == site.layer]
        if not gone or site.kind != kind or part not in (None, site.part):
            return weights
        if max(gone) >= weights.shape[1] or min(gone) < 0:
            raise ValueError(f"layer {site.layer} has heads 0 to {weights.shape[1] - 1}, not {gone}")
        keep = torch.ones(weights.shape[1], device=weights.device, dtype=weights.dtype)
        keep[gone] = 0
        return weights * keep[:, None, None]

    return edit


def _sites(model: nn.Module) -> dict[nn.Module, Site]:
    """A module's path is its address: `decoder.layers.3.cross` is layer 3's cross-attention in the decoder."""
    from regard.nn.attention import Attention

    found: dict[nn.Module, Site] = {}
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
    """Let threads that record run what was compiled as it was written."""
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
    """A compiled call that takes the plain way in threads that record; counts who needs it."""

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
