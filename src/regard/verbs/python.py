"""The Python door: `regard.NAME(...)` for every verb, built from its request."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from regard.errors import InputError, InputWarning
from regard.events import Event, Note, drain
from regard.verbs import RENAMED
from regard.verbs.base import Device, Verb, cli_of

if TYPE_CHECKING:
    from regard.checkpoints.loaded_model import LoadedModel


WARNING = "warning: "  # how notes begin that Python code gets as warnings


class LocalModels:
    """Models that are loaded when a verb needs them, onto one device; `given` are loaded ones by their labels."""

    def __init__(self, device: str = "auto", given: dict[str, LoadedModel] | None = None) -> None:
        self.device = device
        self._loaded = dict(given or {})

    @contextmanager
    def use(
        self, name: str, check: Callable[[str], object] | None = None, *, precision: str = "fp32"
    ) -> Iterator[LoadedModel]:
        if name not in self._loaded:
            if check is not None:
                check(name)
            from regard.device import all_devices, choose_device
            from regard.inference.load_model import load_model

            loaded = load_model(name, device=choose_device(self.device), precision=precision)
            self._loaded[name] = replace(loaded, devices=tuple(all_devices(self.device)))
        yield self._loaded[name].in_precision(precision)


def python_function(verb: Verb) -> Callable[..., Any]:
    """The verb as a function with the request's fields as parameters; models may be names or loaded models."""
    parameters = signature(verb)
    with_device = "device" in parameters.parameters

    def call(*arguments: Any, on_event: Callable[[Event], object] | None = None, **options: Any) -> Any:
        try:
            values = parameters.bind(*arguments, **options).arguments
        except TypeError as error:
            raise TypeError(f"regard.{verb.name}(): {error}") from None
        device = values.pop("device", "auto") if with_device else "auto"
        models = LocalModels(device)
        for name in verb.model_fields():
            if name in values:
                values[name] = _label(values[name], models._loaded)
        found: list[str] = []

        def collect(event: Event) -> None:
            if isinstance(event, Note) and event.message.startswith(WARNING):
                found.append(event.message.removeprefix(WARNING))
            if on_event is not None:
                on_event(event)

        result = drain(verb.run(verb.parse(values, python=True), models), collect)
        for message in (*found, *result._cut_notes):
            warnings.warn(message, InputWarning, stacklevel=2)
        return result.to_python()

    call.__name__ = call.__qualname__ = RENAMED.get(verb.name, verb.name)
    call.__module__ = "regard"
    call.__doc__ = _docstring(verb)
    call.__signature__ = parameters  # type: ignore[attr-defined]
    return call


def signature(verb: Verb) -> inspect.Signature:
    """Positional arguments first, then everything else by keyword."""
    parameters, kind = [], inspect.Parameter
    fields = sorted(verb.request.model_fields.items(), key=lambda field: not field[1].is_required())
    for positional in (True, False):
        for name, info in fields:
            if any(cli_of(info).get(key) for key in ("position", "positional")) is positional:
                how = kind.POSITIONAL_OR_KEYWORD if positional else kind.KEYWORD_ONLY
                default = kind.empty if info.is_required() else info.get_default(call_default_factory=True)
                parameters.append(kind(name, how, default=default, annotation=info.annotation))
    if verb.model_fields() and "device" not in verb.request.model_fields:
        parameters.append(kind("device", kind.KEYWORD_ONLY, default="auto", annotation=Device))
    return inspect.Signature(parameters)


def _label(value: Any, loaded: dict[str, LoadedModel]) -> Any:
    """The name under which the verb finds a model that the caller passed in place of its name."""
    if isinstance(value, str | os.PathLike) or value is None:
        return value if value is None else os.fspath(value)
    if isinstance(value, list):
        return [_label(item, loaded) for item in value]
    from regard.checkpoints.loaded_model import LoadedModel

    value = _fine_tuned(value, loaded)
    if isinstance(value, tuple) and len(value) == 2:
        value = LoadedModel("model" if "model" not in loaded else f"model {len(loaded) + 1}", *value)
    if not isinstance(value, LoadedModel):
        raise InputError(f"model is {type(value).__name__}; expected a name, a folder, or what regard.load returns")
    loaded[value.name] = replace(value, changeable=True)
    return value.name


def _fine_tuned(value: Any, loaded: dict[str, LoadedModel]) -> Any:
    """What `regard.load` returned for a fine-tuned model, or a fitted estimator, as a loaded model."""
    from regard.checkpoints.loaded_model import LoadedModel
    from regard.tasks.fine_tuned_model import FineTunedModel

    if hasattr(value, "fine_tuned_"):
        value = value.fine_tuned_
    elif type(value).__module__ == "regard.training.estimators":
        raise InputError(f"this {type(value).__name__} is not fitted; call fit first")
    if not isinstance(value, FineTunedModel):
        return value
    name = value.name if value.name not in loaded else f"{value.name} {len(loaded) + 1}"
    return LoadedModel(name, value.model.encoder, value.tokenizer, fine_tuned=value, folder=value.folder)


def _docstring(verb: Verb) -> str:
    lines = [verb.help, "", "Parameters", "----------"]
    for name, info in verb.request.model_fields.items():
        default = "" if info.is_required() else f", default {info.get_default(call_default_factory=True)!r}"
        lines += [f"{name} : {_type_name(info.annotation)}{default}", f"    {info.description}"]
    return "\n".join(lines)


def _type_name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
