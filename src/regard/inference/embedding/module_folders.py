"""The modules of a folder of sentence-transformers: their kinds, folders and settings, and the routes of a Router."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.errors import InputError
from regard.files.checksums import stays_inside
from regard.files.json_files import read_json, read_json_value

TRANSFORMERS = ("Transformer", "MLMTransformer")
TRANSFORMER_SETTINGS = "sentence_bert_config.json"
# What a Transformer's settings may say without a change of the vectors of texts.
HARMLESS = ("modality_config", "module_output_name", "unpad_inputs")
READ = ("transformer_task", "max_seq_length", "query_length", "document_length", "query_expansion")


@dataclass(frozen=True)
class Module:
    """A module with the settings of its file, `path`."""

    kind: str
    folder: Path
    path: Path
    settings: dict[str, Any] = field(default_factory=dict)

    def max_length(self) -> int | None:
        """The maximum number of tokens that a Transformer's settings state."""
        value = self.settings.get("max_seq_length")
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise InputError(f"{self.path}: max_seq_length is {value!r}; expected a number of tokens")
        return value

    def routes(self) -> dict[str, list[Module]]:
        """The modules of each route of a Router."""
        types, structure = self.settings.get("types"), self.settings.get("structure")
        parameters = self.settings.get("parameters") or {}
        if not isinstance(types, dict) or not isinstance(structure, dict) or not isinstance(parameters, dict):
            raise InputError(f"{self.path}: expected types and structure of a Router")
        if parameters.get("route_mappings"):
            raise InputError(f"{self.path}: route_mappings is {parameters['route_mappings']!r}; expected none")
        return {
            str(route): [_module(self.folder, str(types.get(name, "")), name, self.path) for name in names]
            for route, names in structure.items()
        }


def read_modules(folder: Path) -> list[Module]:
    """The modules of a folder, in order; none without modules.json."""
    path = folder / "modules.json"
    if not path.is_file():
        return []
    modules = read_json_value(path)
    if not isinstance(modules, list) or not all(isinstance(one, dict) for one in modules):
        raise InputError(f"{path}: expected a list of modules")
    return [_module(folder, str(one.get("type", "")), one.get("path", ""), path) for one in modules]


def check_keys(module: Module, known: Collection[str]) -> None:
    """Refuse a setting that is not followed, by its name."""
    unknown = sorted(
        key for key, value in module.settings.items() if key not in known and value not in (None, False, [], {})
    )
    if unknown:
        raise InputError(
            f"{module.path}: {module.kind} has {unknown[0]} = {module.settings[unknown[0]]!r}, which Regard does not "
            "follow; remove it from the file if it has no effect"
        )


def _module(folder: Path, type_name: str, where: object, listing: Path) -> Module:
    if not isinstance(where, str) or (where and not stays_inside(where)):
        raise InputError(f"{listing}: the module's path is {where!r}; expected a folder beside it")
    kind, home = type_name.rpartition(".")[2], folder / where
    names = [TRANSFORMER_SETTINGS] if kind in TRANSFORMERS else ["config.json"]
    names = ["router_config.json", "config.json"] if kind == "Router" else names
    path = next((home / name for name in names if (home / name).is_file()), home / names[0])
    found = Module(kind, home, path, dict(read_json(path)) if path.is_file() else {})
    if kind in TRANSFORMERS:
        check_keys(found, (*READ, *HARMLESS))
    return found
