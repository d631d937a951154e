"""The switches of the figure: a model that runs without its mask, its positions, its scaling or its residuals.

Knows attentions, residuals and embeddings, which it changes from outside for as long as a block runs. Knows no text and
no measure of the damage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import InputError, check_choice
from regard.nn import Attention, Padded, Residual, TextEmbedding
from regard.nn.attention import attention_weights
from regard.nn.masks import attention_mask, select_rows

__all__ = ["COMPONENTS", "missing_components", "parse_components", "without_components"]

COMPONENTS = {
    "mask": "no mask",
    "positions": "no positions",
    "scaling": "no scaling",
    "residual": "no residual",
}

Hook = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], Any]


def parse_components(names: str) -> tuple[str, ...]:
    """Switches as `mask,positions` names them: in the figure's order and once each; none for an empty text."""
    found = {name.strip() for name in names.split(",") if name.strip()}
    for name in sorted(found):
        check_choice("switch", name, COMPONENTS)
    return tuple(name for name in COMPONENTS if name in found)


def missing_components(model: nn.Module) -> dict[str, str]:
    """The switches that change nothing in this model, each with the reason."""
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    embeddings = [module for module in model.modules() if isinstance(module, TextEmbedding)]
    found = {}
    if not any(one.causal for one in attentions):
        found["mask"] = "an encoder has no such mask: every token may look at every other"
    if all(one.positions is None for one in embeddings):
        found["positions"] = "this model adds no positions to its embeddings"
    if all(one.scale == 1.0 for one in attentions):
        found["scaling"] = "this model does not scale its scores"
    return found


@contextmanager
def without_components(model: nn.Module, switches: Collection[str]) -> Iterator[None]:
    """Let the model run without some of its parts in this thread while the block runs.

    `mask`: decoders see the future. `positions`: zeros are added for them. `scaling`: scores are not divided by the
    root of the head's width. `residual`: what goes around a sublayer is not added to what comes out of it.
    Batches must be padded, and decoding uses no cache.
    """
    gone = missing_components(model)
    for name in switches:
        check_choice("switch", name, COMPONENTS)
        if name in gone:
            raise InputError(f"cannot switch off {name!r}: {gone[name]}")
    mine = threading.get_ident()

    def here(hook: Hook) -> Hook:
        """Hooks are shared by threads, so they ask which thread it is."""

        def asked(module: Any, given: tuple[Any, ...], options: dict[str, Any], result: Any) -> Any:
            return hook(module, given, options, result) if threading.get_ident() == mine else None

        return asked

    with ExitStack() as hooks:
        for module in model.modules():
            hook = _hook(module, switches)
            if hook is not None:
                hooks.callback(module.register_forward_hook(here(hook), with_kwargs=True).remove)
            if "positions" in switches and isinstance(module, TextEmbedding) and module.positions is not None:
                zeros = here(lambda module, given, options, result: torch.zeros_like(result))
                hooks.callback(module.positions.register_forward_hook(zeros, with_kwargs=True).remove)
        yield


def _hook(module: nn.Module, switches: Collection[str]) -> Hook | None:
    if isinstance(module, Residual) and "residual" in switches:
        return _unadded
    if isinstance(module, Attention):
        unmasked, unscaled = "mask" in switches and module.causal, "scaling" in switches
        if unmasked or unscaled:
            return lambda module, given, options, result: _attended(
                module, given, options, causal=module.causal and not unmasked, scaled=not unscaled
            )
    return None


def _unadded(module: Residual, given: tuple[Any, ...], options: dict[str, Any], result: Tensor) -> Tensor:
    """The sublayer alone: norm(branch(x)), or branch(norm(x)) where the norm comes first."""
    x, branch, *rest = given
    more: Tensor = branch(module.norm(x) if module.first else x, *rest, **options)
    return more if module.first else module.norm(more).to(more.dtype)


def _attended(
    module: Attention, given: tuple[Any, ...], options: dict[str, Any], *, causal: bool, scaled: bool
) -> Tensor:
    x, layout, memory, memory_layout = (*given, None, None)[:4]
    keys = layout if memory is None else (memory_layout or Padded())
    if not isinstance(keys, Padded) or options.get("cache") is not None:
        raise ValueError("without a mask or scaling, a model needs a padded batch and no cache")
    query, key, value = (
        one.unflatten(-1, (module.heads, -1)).transpose(1, 2)
        for one in module.project(x, x if memory is None else memory)
    )
    mask = attention_mask(keys, query, query.shape[2], key.shape[2], causal=causal)
    scale = module.score_scale(query) if scaled else 1.0
    weights = attention_weights(query, key, scale=scale, score=module.score, bias=options.get("bias"), mask=mask)
    mixed = (weights.to(value.dtype) @ value).transpose(1, 2).flatten(-2)
    rows = options.get("rows")
    result: Tensor = module.output(mixed if rows is None else select_rows(mixed, rows))
    return result
