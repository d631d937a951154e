"""The folders of sentence-transformers: their modules with kinds, folders and settings, and the keys of their files.

Every key of a configuration is used, is harmless, or is refused by name. Nothing that a file names is imported, but
activations of torch.nn.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from torch import nn

from regard.errors import InputError
from regard.files.checksums import stays_inside
from regard.files.json_files import read_json, read_json_value

MODULES, ROUTER, MODEL_CONFIG = "modules.json", "router_config.json", "config_sentence_transformers.json"
TRANSFORMERS = ("Transformer", "MLMTransformer")
# The settings of a Transformer; older versions named the file after the family.
TEXT_CONFIGS = tuple(
    f"sentence_{name}_config.json" for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta")
)
MODULE_KEYS = ("idx", "name", "path", "type", "kwargs")  # kwargs: which arguments of encode() a module gets
HARMLESS_TRANSFORMER = ("modality_config", "module_output_name", "unpad_inputs")  # for the states of texts
HARMLESS_MODEL = ("__version__", "requirements")  # of config_sentence_transformers.json


class ConfigKeys:
    """The keys of a configuration file. What asks for nothing (None, an empty list or object) may stay unread.

    `advice` is a sentence for the user whose file is refused.
    """

    def __init__(self, path: Path, document: Mapping[str, Any] | None = None, *, advice: str = "") -> None:
        self.path, self.advice = path, advice or "If it changes nothing, remove it from the file"
        self.rest: dict[str, Any] = dict((read_json(path) if path.is_file() else {}) if document is None else document)

    def keep(self, *names: str) -> None:
        """Leave out all other keys."""
        self.rest = {key: value for key, value in self.rest.items() if key in names}

    def take(self, key: str, default: Any = None) -> Any:
        """The value of a key, which is then used."""
        return self.rest.pop(key, default)

    def take_count(self, key: str) -> int | None:
        """The value of a key that is a number from 1, or None."""
        value = self.take(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise InputError(f"{self.path}: {key} is {value!r}; expected a whole number from 1")
        return value

    def take_prompts(self, *implied: str) -> tuple[dict[str, str], str | None]:
        """The texts of the prompts by name, and the name of the default one: one of them, or one of `implied`."""
        prompts, default = self.take("prompts") or {}, self.take("default_prompt_name")
        if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
            raise InputError(f"{self.path}: prompts is {prompts!r}; expected an object of names and texts")
        if default is not None and default not in (*prompts, *implied):
            raise InputError(
                f"{self.path}: default_prompt_name is {default!r}, which its prompts do not have: {', '.join(prompts)}"
            )
        return {name: text or "" for name, text in prompts.items()}, default

    def expect(self, key: str, *supported: object) -> None:
        """Refuse a key unless it has one of the supported values."""
        value = self.rest.pop(key, None)
        if value is not None and value not in supported:
            raise self.refusal(f"{key} is {value!r}", f"expected {' or '.join(map(repr, supported))}")

    def finish(self, harmless: Collection[str] = ()) -> None:
        """Refuse the keys that were not used."""
        unknown = [
            f"{key} is {value!r}"
            for key, value in self.rest.items()
            if key not in harmless and value not in (None, [], {})
        ]
        if unknown:
            raise self.refusal("; ".join(unknown)[:300], "expected none of this")

    def refusal(self, found: str, expected: str = "") -> InputError:
        return InputError(
            f"{self.path}: {found}, which Regard does not support{expected and '; '}{expected}. {self.advice}"
        )


@dataclass(frozen=True)
class Module:
    """A module that the file `listing` names. `kind` is its class, with its package if that is another one than
    sentence-transformers. `place` is its folder, relative to that of the file; `entry` is what the file says of it."""

    kind: str
    place: str
    listing: Path
    entry: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        if self.place and not stays_inside(self.place):
            raise InputError(
                f"{self.listing}: the path of a module is {self.place!r}; expected a folder inside "
                f"{self.listing.parent}"
            )
        return self.listing.parent / self.place

    def keys(self, *, advice: str = "") -> ConfigKeys:
        """The settings of the module; InputError if its entry has keys that are not known."""
        ConfigKeys(self.listing, self.entry, advice=advice).finish(MODULE_KEYS)
        names = TEXT_CONFIGS if self.kind in TRANSFORMERS else ("config.json",)
        names = (ROUTER, "config.json") if self.kind == "Router" else names
        present = (self.folder / name for name in names if (self.folder / name).is_file())
        return ConfigKeys(next(present, self.folder / names[0]), advice=advice)

    def routes(self) -> dict[str, list[Module]]:
        """The modules of each route of a Router."""
        keys = self.keys()
        types, structure, parameters = (keys.take(key) for key in ("types", "structure", "parameters"))
        if not isinstance(types, dict) or not isinstance(structure, dict) or not isinstance(parameters or {}, dict):
            raise InputError(f"{keys.path}: expected types and structure of a Router")
        if (parameters or {}).get("route_mappings"):
            raise InputError(f"{keys.path}: route_mappings is {parameters['route_mappings']!r}; expected none")
        return {
            str(route): [Module(_kind(types.get(name)), str(name), keys.path) for name in names]
            for route, names in structure.items()
        }


def read_modules(folder: Path) -> list[Module]:
    """The modules of a folder, in order; none without modules.json."""
    path = folder / MODULES
    if not path.is_file():
        return []
    listed, found = read_json_value(path), []
    if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
        raise InputError(f"{path}: expected a list of modules")
    for number, one in enumerate(listed):
        kind = _kind(one.get("type"))
        place = one.get("path", f"{number}_{kind.rpartition('.')[2]}" if number else "")
        found.append(Module(kind, "" if place == "." else str(place), path, one))
    return found


def first_module(folder: Path) -> Module | None:
    """The first module of a folder; where queries have other ones, the first one for documents."""
    first = next(iter(read_modules(folder)), None)
    if first is not None and first.kind == "Router":
        return next(iter(first.routes().get("document", [])), first)
    return first


def model_type(folder: Path) -> str | None:
    """The class of sentence-transformers that wrote a folder, if the folder states it."""
    found = ConfigKeys(folder / MODEL_CONFIG).take("model_type")
    return None if found is None else str(found)


def activation(name: str) -> type[nn.Module]:
    """The class of an activation by its full name, such as torch.nn.modules.activation.Tanh."""
    package, _, kind = name.rpartition(".")
    found: Any = getattr(nn, kind, None)
    home = getattr(found, "__module__", "")
    known = isinstance(found, type) and issubclass(found, nn.Module) and home.startswith("torch.nn.modules.")
    if known and package in ("torch.nn", home):
        with suppress(TypeError):  # a layer with sizes
            found()
            return cast("type[nn.Module]", found)
    raise InputError(f"the activation is {name!r}; expected a class of torch.nn, such as torch.nn.Sigmoid")


def _kind(type_name: object) -> str:
    package, _, kind = str(type_name or "").rpartition(".")
    if package.startswith("sentence_transformers."):
        return kind or "an unnamed module"
    return f"{package}.{kind}" if kind else "an unnamed module"  # code of the model's author
