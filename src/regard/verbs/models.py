"""`regard models`: the model families and the known checkpoints."""

from __future__ import annotations

from pydantic import BaseModel

from regard.known import builtin_names
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


class ModelList(Result):
    """Families, built-in models and known checkpoints of the Hugging Face hub."""

    families: list[FamilyEntry]
    built_in: list[str]
    checkpoints: list[CheckpointEntry]

    def to_text(self) -> str:
        width = max(len(entry.name) for entry in self.checkpoints)
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
                *(f"  {name}" for name in self.built_in or ["none in this version"]),
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
        built_in=builtin_names(),
        checkpoints=[
            CheckpointEntry(name=one.name, family=one.family, parameters=one.parameters) for one in known_checkpoints()
        ],
    )
