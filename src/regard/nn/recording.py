"""`with record(model) as tape` records attention and hidden states of a model in this thread on a `Tape`.

The fast kernels stay in use: the tape keeps queries and keys and recomputes a map on request, so a recorded forward
pass computes the same results. Only an `edit`, which changes maps, needs the explicit path. Other threads are not
recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.masks import Layout, Packed, Padded, length_groups, to_padded

if TYPE_CHECKING:
    from regard.nn.attention import Attention


NOTHING = "nothing (a compiled function around the model is not recorded: pass its module to record)"


def check_layer(layer: int, num_layers: int, *, owner: str = "this model") -> int:
    """The number of a layer from 1, where -1 is the last; raises InputError if `owner` does not have it.

    Layers are numbered as hidden states are: layer k returns hidden state k, and 0 is the output of the embeddings.
    """
    number = layer + num_layers + 1 if layer < 0 else layer
    if not 1 <= number <= num_layers:
        has = f"layers 1 to {num_layers}" if num_layers > 1 else "one layer, number 1"
        raise InputError(f"no layer {layer}: {owner} has {has}; 0 is the embeddings, which have no attention")
    return number


def check_head(head: int, num_heads: int, *, owner: str = "this model") -> int:
    """The number of a head, from 0; raises InputError if `owner` does not have it."""
    if not 0 <= head < num_heads:
        has = f"heads 0 to {num_heads - 1}" if num_heads > 1 else "one head, number 0"
        raise InputError(f"no head {head}: {owner} has {has}")
    return head


@dataclass(frozen=True)
class Site:
    """Identifies an attention: `part` of the model (encoder, decoder), `kind` (self, cross) and `layer` from 1."""

    part: str
    kind: str
    layer: int


Edit = Callable[[Tensor, Site], Tensor]  # weights (B, H, T, S) and their site -> the weights to use instead


class AppliedEdits:
    """The edits of all tapes at one attention, applied in the order of their `record` blocks; stores the edited maps.

    Without an edit it only stores the map, because a learned score may change before the map is requested.
    """

    def __init__(self, edits: list[tuple[Edit, Site]]) -> None:
        self.edits = edits
        self.weights: list[Tensor] = []

    def __call__(self, weights: Tensor) -> Tensor:
        for edit, site in self.edits:
            changed = edit(weights, site)
            if changed.shape != weights.shape:
                raise ValueError(
                    f"the edit at {site} returned shape {tuple(changed.shape)}, expected {tuple(weights.shape)}"
                )
            weights = changed
        self.weights.append(weights)
        return weights


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call of an attention. Queries and keys are (B, H, T, D) if padded and (N, H, D) if packed.

    Keys of grouped-query attention have fewer heads.
    """

    attention: Attention
    query: Tensor
    key: Tensor
    queries: Packed | None
    keys: Layout
    bias: Tensor | None
    edits: AppliedEdits | None

    def weights(self) -> Tensor:
        """Return the attention map (B, H, T, S) after any edit; the padding of a packed batch is 0."""
        if not isinstance(self.keys, Packed):
            return (
                self.edits.weights[0]
                if self.edits
                else self.attention.weights(self.query, self.key, self.keys, self.bias)
            )
        assert self.queries is not None
        longest = self.queries.max_length, self.keys.max_length
        pieces = []
        for number, run in enumerate(length_groups(self.queries, self.keys)):
            if self.edits:
                piece = self.edits.weights[number]
            else:
                q, k = run.select_queries(self.query).transpose(1, 2), run.select_keys(self.key).transpose(1, 2)
                bias = None if self.bias is None else self.bias[..., : run.queries, : run.keys]
                piece = self.attention.weights(q, k, Padded(), bias)
            padding = (0, longest[1] - run.keys, 0, longest[0] - run.queries)
            pieces.append(torch.nn.functional.pad(piece, padding))
        return torch.cat(pieces)

    def vectors(self, which: str) -> Tensor:
        """Return queries or keys as (B, H, T, D); heads of grouped-query attention that share keys repeat them."""
        from regard.nn.kernels import repeat_heads

        x = self.query if which == "query" else repeat_heads(self.key, self.attention.heads)
        layout = self.queries if which == "query" else self.keys
        return to_padded(x, layout)[0].transpose(1, 2) if isinstance(layout, Packed) else x


@dataclass(eq=False)
class Tape:
    """The recording of a forward pass, or of a generation, whose steps are concatenated along the queries.

    A module that is several layers, as in ALBERT, has several sites.
    """

    sites: dict[Attention, list[Site]]
    parts: dict[nn.Module, str]
    edit: Edit | None = None
    calls: dict[Site, list[AttentionCall]] = field(default_factory=dict)
    states: dict[str, dict[int, list[tuple[Tensor, Layout]]]] = field(default_factory=dict)

    def next_site(self, module: Attention) -> Site | None:
        """Return the site of the next call of a module: layers run in their order, so the one with the fewest calls."""
        return min(self.sites.get(module, ()), key=lambda site: len(self.calls.get(site, ())), default=None)

    def attention(self, kind: str | None = None, part: str | None = None) -> list[Tensor]:
        """Return the attention maps (B, H, T, S) of all layers, before dropout and after the edit.

        The first map is of layer 1, since the embeddings have none: the list is one shorter than `hidden`.
        `kind` is "self" or "cross"; the default is the only recorded kind, else "self". `part` is required if several
        parts of the model have that kind.
        """
        return [self._join([r.weights() for r in self.calls[s]]) for s in self._select_sites(kind, part)]

    def queries(self, kind: str | None = None, part: str | None = None) -> list[Tensor]:
        """Return the queries (B, H, T, D) of all layers."""
        return [torch.cat([r.vectors("query") for r in self.calls[s]], dim=2) for s in self._select_sites(kind, part)]

    def keys(self, kind: str | None = None, part: str | None = None) -> list[Tensor]:
        """Return the keys (B, H, S, D) of the last step for all layers."""
        return [self.calls[s][-1].vectors("key") for s in self._select_sites(kind, part)]

    def hidden(self, part: str | None = None) -> list[Tensor]:
        """Return the hidden states (B, T, W): the embeddings, then each layer's output, the last after the norm."""
        known = list(self.states) or NOTHING
        if part is None and len(self.states) > 1:
            raise KeyError(f"hidden states were recorded in several parts, name one with part=: {known}")
        name = part if part is not None else next(iter(self.states), "")
        if name not in self.states:
            raise KeyError(f"no hidden states of {part or 'any part'} on the tape; it has {known}")
        _check_run(next((calls for site, calls in self.calls.items() if site.part == name), []))
        layers = self.states[name]
        return [torch.cat([to_padded(x, layout)[0] for x, layout in layers[i]], dim=1) for i in sorted(layers)]

    def _select_sites(self, kind: str | None, part: str | None) -> list[Site]:
        kinds = {s.kind for s in self.calls if part in (None, s.part)}
        kind = kind or (kinds.pop() if len(kinds) == 1 else "self")
        sites = sorted((s for s in self.calls if s.kind == kind and part in (None, s.part)), key=lambda s: s.layer)
        known = sorted({(s.part, s.kind) for s in self.calls})
        if not sites:
            raise KeyError(f"no {kind} attention of {part or 'any part'} on the tape; it has {known or NOTHING}")
        if len({s.part for s in sites}) > 1:
            raise KeyError(f"{kind} attention is in several parts, name one with part=: {known}")
        _check_run(self.calls[sites[0]])
        return sites

    @staticmethod
    def _join(maps: list[Tensor]) -> Tensor:
        longest = max(m.shape[-1] for m in maps)
        return torch.cat([torch.nn.functional.pad(m, (0, longest - m.shape[-1])) for m in maps], dim=2)


def _check_run(calls: list[AttentionCall]) -> None:
    """Raise ValueError unless the calls are one forward pass or steps of one generation.

    A step adds one token, or as many tokens as its keys grow by.
    """
    for before, after in pairwise(calls):
        steps = before.queries is None and after.queries is None and len(before.query) == len(after.query)
        if steps and (new := after.query.shape[2]) > 1:
            steps = after.key.shape[2] - before.key.shape[2] == new
        if not steps:
            raise ValueError(
                f"this tape holds {len(calls)} forward passes that are not the steps of one generation; record each in "
                "its own block, or read them one by one in tape.calls"
            )


class _ThreadTapes(threading.local):
    tapes: tuple[Tape, ...] = ()


_local = _ThreadTapes()


def is_recording() -> bool:
    """Whether this thread is recording."""
    return bool(_local.tapes)


def record_attention(
    module: Attention, query: Tensor, key: Tensor, queries: Packed | None, keys: Layout, bias: Tensor | None
) -> AppliedEdits | None:
    """Record a call of an attention and return the edits to apply, if any. Every attention calls this."""
    if torch.compiler.is_compiling() or not _local.tapes:
        return None
    sites = [(tape, site) for tape in _local.tapes if (site := tape.next_site(module)) is not None]
    active = [(tape.edit, site) for tape, site in sites if tape.edit is not None]
    edits = AppliedEdits(active) if active or (sites and module.score is not None) else None
    for tape, site in sites:
        tape.calls.setdefault(site, []).append(AttentionCall(module, query, key, queries, keys, bias, edits))
    return edits


def record_hidden_state(module: nn.Module, number: int, x: Tensor, layout: Layout) -> None:
    """Record a hidden state; 0 is the embedding output. Every encoder and decoder calls this."""
    if torch.compiler.is_compiling() or not _local.tapes:
        return
    for tape in _local.tapes:
        part = tape.parts.get(module)
        if part is not None:
            tape.states.setdefault(part, {}).setdefault(number, []).append((x, layout))


@contextmanager
def record(model: nn.Module, *, edit: Edit | None = None) -> Iterator[Tape]:
    """Record the attention and hidden states of `model` in this thread; `edit` may change any attention map.

    Inside the block a compiled model runs uncompiled in this thread; other threads keep using the compiled model.
    """
    plain = getattr(model, "_orig_mod", model)
    sites = _sites(plain)
    tape = Tape(sites, _parts(plain), edit.in_model(sites) if isinstance(edit, HeadAblation) else edit)
    before = _local.tapes
    with _uncompiled(model):
        _local.tapes = (*before, tape)
        try:
            yield tape
        finally:
            _local.tapes = before
        if edit is not None and not tape.calls:
            raise RuntimeError(f"the edit was never used: the tape holds {NOTHING}")


@dataclass(frozen=True)
class HeadAblation:
    """An edit that zeroes `heads`, pairs of a layer from 1 (-1 is the last) and a head from 0."""

    heads: frozenset[tuple[int, int]]
    kind: str
    part: str | None

    def __call__(self, weights: Tensor, site: Site) -> Tensor:
        ablated = [head for layer, head in self.heads if layer == site.layer]
        if not ablated or not self._applies_to(site):
            return weights
        keep = torch.ones(weights.shape[1], device=weights.device, dtype=weights.dtype)
        keep[ablated] = 0
        return weights * keep[:, None, None]

    def in_model(self, sites: Mapping[Attention, Collection[Site]]) -> HeadAblation:
        """The ablation with layers as in `sites`; raises InputError for heads that the model does not have."""
        heads = {site.layer: module.heads for module in sites for site in sites[module] if self._applies_to(site)}
        owner = f"the {self.kind} attention" + (f" of the {self.part}" if self.part else "")
        if not heads:
            raise InputError(f"no heads to ablate: the model does not have {owner}")
        found = set()
        for layer, head in sorted(self.heads):
            number = check_layer(layer, max(heads), owner=owner)
            found.add((number, check_head(head, heads[number], owner=owner)))
        return replace(self, heads=frozenset(found))

    def _applies_to(self, site: Site) -> bool:
        return site.kind == self.kind and self.part in (None, site.part)


def ablate_heads(heads: Collection[tuple[int, int]], *, kind: str = "self", part: str | None = None) -> HeadAblation:
    """Return an edit that zeroes the attention weights of `heads`: pairs of a layer, from 1, and a head, from 0."""
    for pair in heads:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"expected a list of pairs (layer, head) such as [(3, 1)]; got {pair!r} in {heads!r}")
    return HeadAblation(frozenset((layer, head) for layer, head in heads), kind, part)


def _sites(model: nn.Module) -> dict[Attention, list[Site]]:
    """Derive sites from module paths: `decoder.layers.3.cross` is the cross-attention of the decoder's layer 4."""
    from regard.nn.attention import Attention

    sites: dict[Attention, list[Site]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, Attention):
            *above, name = path.split(".")
            index = next((int(word) for word in reversed(above) if word.isdigit()), 0)
            site = Site(_part(path), "cross" if name == "cross" else "self", index + 1)
            sites.setdefault(module, []).append(site)
    return sites


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
        return (self.plain if _local.tapes else self.compiled)(*args, **kwargs)


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
