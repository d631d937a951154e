"""`regard models`: the model families and the known checkpoints."""

from __future__ import annotations

from pydantic import BaseModel

from regard.inference.model_summary import ModelSummary, summarize_folder
from regard.known import BUILT_IN, INSTALL, builtin_names
from regard.models.family import families, known_checkpoints
from regard.render.result import Result, Table
from regard.verbs.base import Models, Request, verb


class FamilyEntry(BaseModel):
    name: str
    note: str
    capabilities: list[str]


class CheckpointEntry(BaseModel):
    name: str
    family: str
    parameters: int


class BuiltInEntry(BaseModel):
    """A built-in model; `installed` is false for one of a package that is not installed."""

    name: str
    description: str
    parameters: int | None
    installed: bool

    def about(self) -> str:
        size = "" if self.parameters is None else f"{self.parameters / 1e6:5.1f} M  "
        return f"{size}{self.description}" if self.installed else f"not installed: {INSTALL}"


class ModelList(Result):
    """Families, built-in models and known checkpoints of the Hugging Face hub."""

    families: list[FamilyEntry]
    built_in: list[BuiltInEntry]
    checkpoints: list[CheckpointEntry]

    def to_text(self) -> str:
        width = max(len(entry.name) for entry in self.checkpoints)
        own = max(len(entry.name) for entry in self.built_in)
        sizes = (
            f"  {entry.name:<{width}}  {entry.family:<10} {entry.parameters / 1e6:8.1f} M"
            f" {entry.parameters * 4 / 1e9:7.2f} GB"
            for entry in self.checkpoints
        )
        return "\n".join(
            [
                "Families",
                *(f"  {entry.name:<12} {entry.note}" for entry in self.families),
                "\nBuilt in",
                *(f"  {entry.name:<{own}}  {entry.about()}" for entry in self.built_in),
                "\nKnown checkpoints of the Hugging Face hub (parameters in millions, size as float32)",
                *sizes,
                "\nUse one: regard embed FILE --model NAME --output vectors.npy",
            ]
        )

    def to_table(self) -> Table:
        return ("name", "family", "parameters"), [(one.name, one.family, one.parameters) for one in self.checkpoints]


class ModelsRequest(Request):
    pass


@verb(ModelsRequest, result="regard.verbs.models:ModelList", formats=(".csv", ".json"))
def models(request: ModelsRequest, models: Models) -> ModelList:
    """List the model families and known checkpoints, with their sizes.

    Any Hugging Face checkpoint of these families works, by its hub name or as a folder.
    """
    return ModelList(
        families=[
            FamilyEntry(name=one.name, note=one.description, capabilities=sorted(one.capabilities))
            for one in families().values()
        ],
        built_in=[_built_in(name) for name in BUILT_IN if name in builtin_names() or BUILT_IN[name].second_package],
        checkpoints=[
            CheckpointEntry(name=one.name, family=one.family, parameters=one.parameters) for one in known_checkpoints()
        ],
    )


def _built_in(name: str) -> BuiltInEntry:
    installed = name in builtin_names()
    summary = summarize_folder(name) if installed else ModelSummary()
    return BuiltInEntry(
        name=name, description=summary.description, parameters=summary.num_parameters, installed=installed
    )
