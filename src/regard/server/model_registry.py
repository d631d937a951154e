"""The models of a server: loaded one after the other in a thread, each used by one request at a time.

Depends on neither HTTP nor views; torch is imported in the loading thread, not before.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import BaseModel

from regard.errors import InputError, RegardError, suggest
from regard.files.json_files import read_json
from regard.known import builtin_folder, builtin_names
from regard.models.family import Capability, can, families
from regard.server.request_queue import acquire, interruptible

if TYPE_CHECKING:
    from regard.checkpoints.loaded_model import LoadedModel

LOADER_NAME = "regard-models"  # name of the loading thread

# What the page needs to know of a model: the capabilities of its family, that it is fine-tuned for a task, that it was
# trained for sentence embeddings, or that it is an encoder-decoder with post-norm layers, as Figure 1 draws them.
ModelCapability = Capability | Literal["fine-tuned", "sentence-embedding", "post-norm"]
PRETRAINED_ONLY = {"masked-lm", "next-sentence", "text-generation", "fine-tuning"}  # a fine-tuned model has lost these


class ModelState(BaseModel):
    """A model as the page lists it. `capabilities` is null for a hub model that is not loaded yet; `task` names the
    task of a fine-tuned model that is loaded."""

    name: str
    state: Literal["loading", "ready", "failed"]
    error: str
    capabilities: list[ModelCapability] | None
    task: str | None


@dataclass
class ModelEntry:
    """One model: its name as given and its state.

    `capabilities` are inferred from the model folder when it is read, and stay when the folder disappears.
    """

    name: str
    state: Literal["loading", "ready", "failed"] = "loading"
    error: str = ""
    loaded: LoadedModel | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    capabilities: list[ModelCapability] | None = None

    def __post_init__(self) -> None:
        self.capabilities = folder_capabilities(self.name)

    def set_loaded(self, loaded: LoadedModel) -> None:
        """Store the loaded model. From now on requests need only memory, whatever happens to the folder."""
        self.loaded = replace(loaded, cache={})
        self.capabilities, self.state, self.error = model_capabilities(loaded), "ready", ""

    def status(self) -> ModelState:
        fine_tuned = None if self.loaded is None else self.loaded.fine_tuned
        return ModelState(
            name=self.name,
            state=self.state,
            error=self.error,
            capabilities=self.capabilities,
            task=None if fine_tuned is None else fine_tuned.task.name,
        )


class ModelRegistry:
    """Models by name. `start` begins to load them; `use` gives one request exclusive use of a model."""

    def __init__(self, names: Sequence[str], *, load: Callable[[str], LoadedModel] | None = None) -> None:
        self.entries = {name: ModelEntry(name) for name in names}
        self._load = load or _load

    def start(self) -> threading.Thread:
        """Load all models in the background, in order."""
        thread = threading.Thread(target=self._load_all, name=LOADER_NAME, daemon=True)
        thread.start()
        return thread

    def states(self) -> list[ModelState]:
        return [entry.status() for entry in self.entries.values()]

    def capabilities(self, name: str) -> list[ModelCapability] | None:
        """What a model can do, also one that is not among those of the server; None if that is not known."""
        return self.entries[name].capabilities if name in self.entries else folder_capabilities(name)

    @contextmanager
    def use(self, name: str, check: Callable[[str], object] | None = None) -> Iterator[LoadedModel]:
        """Give exclusive use of a model. Raises InputError when it is unknown or not loaded yet, and ClientDisconnected
        when the client goes while it waits for the model or during a forward pass."""
        entry = self.entry(name)
        if entry.state == "failed":
            self._retry(entry)
        if entry.state == "loading":
            raise InputError(f"{name} is still being loaded; try again in a moment")
        with acquire(entry.lock):
            assert entry.loaded is not None
            with interruptible(entry.loaded.model):
                yield entry.loaded

    def add(self, name: str) -> None:
        """Load one more model now."""
        entry = ModelEntry(name)
        entry.set_loaded(self._load(name))
        self.entries = {**self.entries, name: entry}  # a new dictionary: other threads may be iterating over the old

    def entry(self, name: str) -> ModelEntry:
        if name not in self.entries:
            raise InputError(f"the studio has no model {name!r}; {suggest(name, self.entries)}")
        return self.entries[name]

    def _retry(self, entry: ModelEntry) -> None:
        """Load a failed model once more: a missing folder may be back."""
        with acquire(entry.lock):
            if entry.state == "failed":
                self._load_entry(entry)
        if entry.state == "failed":
            raise InputError(f"{entry.name} could not be loaded: {entry.error}")

    def _load_all(self) -> None:
        for entry in self.entries.values():
            with entry.lock:
                self._load_entry(entry)

    def _load_entry(self, entry: ModelEntry) -> None:
        try:
            entry.set_loaded(self._load(entry.name))
        except RegardError as error:
            entry.state, entry.error = "failed", str(error)
        except Exception as error:  # a broken model must stop neither the page nor the other models
            entry.state, entry.error = "failed", f"{type(error).__name__}: {error}"


def folder_capabilities(name: str) -> list[ModelCapability] | None:
    """Infer from its folder what a model can do, before it is loaded; None if there is no such folder, as for a model
    of the hub."""
    folder = builtin_folder(name) if name in builtin_names() else Path(os.path.expanduser(name))
    fine_tuned = (folder / "task.json").is_file()
    try:
        config = read_json(folder / "config.json")
        model_type = config["model_type"]
    except (InputError, KeyError):
        return ["fine-tuned"] if fine_tuned else None
    family = families().get(str(model_type).removeprefix("regard-"))
    known = set() if family is None else family.capabilities
    return _ordered(known, fine_tuned, folder, norm_first=config.get("norm_first"))


def model_capabilities(loaded: LoadedModel) -> list[ModelCapability]:
    known = {capability for capability in get_args(Capability) if can(loaded.model, capability)}
    norm_first = getattr(getattr(loaded.model, "config", None), "norm_first", None)
    return _ordered(known, loaded.fine_tuned is not None, loaded.folder, norm_first=norm_first)


def _ordered(
    known: Collection[Capability], fine_tuned: bool, folder: Path | None, *, norm_first: object
) -> list[ModelCapability]:
    trained: list[ModelCapability] = ["fine-tuned"] if fine_tuned else []
    if folder is not None and (folder / "modules.json").is_file():
        trained.append("sentence-embedding")
    listed = [one for one in get_args(Capability) if one in known and not (trained and one in PRETRAINED_ONLY)]
    drawn: list[ModelCapability] = ["post-norm"] if "encoder-decoder" in known and norm_first is False else []
    return [*trained, *listed, *drawn]


def _load(name: str) -> LoadedModel:
    from regard.inference.load_model import load_model

    return load_model(name)
