"""The models of a server: loaded one after the other in a thread, each used by one request at a time.

Depends on neither HTTP nor views; torch is imported in the loading thread, not before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from regard.checkpoints.packages import packaged_names
from regard.errors import InputError, RegardError, suggest
from regard.inference.model_summary import ModelCapability, ModelSummary, summarize_folder, summarize_model
from regard.known import builtin_names
from regard.server.studio.request_queue import acquire, interruptible, use_threads

if TYPE_CHECKING:
    from regard.checkpoints.loaded_model import LoadedModel

LOADER_NAME = "regard-models"  # name of the loading thread


class ModelState(ModelSummary):
    """A model as the page lists it. `capabilities` is null for a hub model that is not loaded yet; `description` says
    what it suits; `num_attention_heads` is 1 for a recurrent model with attention."""

    name: str
    state: Literal["loading", "ready", "failed"]
    error: str


@dataclass
class ModelEntry:
    """One model: its name as given and its state.

    The summary is inferred from the model folder when it is read, and stays when the folder disappears.
    """

    name: str
    state: Literal["loading", "ready", "failed"] = "loading"
    error: str = ""
    loaded: LoadedModel | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    summary: ModelSummary = field(default_factory=ModelSummary)

    def __post_init__(self) -> None:
        self.summary = summarize_folder(self.name)

    def set_loaded(self, loaded: LoadedModel) -> None:
        """Store the loaded model. From now on requests need only memory, whatever happens to the folder."""
        self.loaded = replace(loaded, cache={})
        self.summary, self.state, self.error = summarize_model(loaded), "ready", ""

    def status(self) -> ModelState:
        return ModelState(name=self.name, state=self.state, error=self.error, **dict(self.summary))


class ModelRegistry:
    """Models by name. `start` begins to load them; `use` gives one request exclusive use of a model.

    `threads` is the number of threads of a request; 0: by the size of its model.
    """

    def __init__(
        self, names: Sequence[str], *, load: Callable[[str], LoadedModel] | None = None, threads: int = 0
    ) -> None:
        self.entries = {name: ModelEntry(name) for name in names}
        self._load = load or _load
        self._adding = threading.Lock()
        self.threads = threads

    def start(self) -> threading.Thread:
        """Load all models in the background, in order."""
        thread = threading.Thread(target=self._load_all, name=LOADER_NAME, daemon=True)
        thread.start()
        return thread

    def states(self) -> list[ModelState]:
        return [entry.status() for entry in self.entries.values()]

    def capabilities(self, name: str) -> list[ModelCapability] | None:
        """What a model can do, also one that is not among those of the server; None if that is not known."""
        return (self.entries[name].summary if name in self.entries else summarize_folder(name)).capabilities

    @contextmanager
    def use(
        self, name: str, check: Callable[[str], object] | None = None, *, precision: str = "fp32"
    ) -> Iterator[LoadedModel]:
        """Give exclusive use of a model. Raises InputError when it is unknown or not loaded yet, and Cancelled
        when the client goes while it waits for the model or during a forward pass."""
        entry = self.entry(name)
        if entry.state == "failed":
            self._retry(entry)
        if entry.state == "loading":
            raise InputError(f"{name} is still being loaded; try again in a moment")
        with acquire(entry.lock):
            assert entry.loaded is not None
            use_threads(entry.summary.num_parameters or 0, threads=self.threads)
            loaded = entry.loaded.in_precision(precision)
            with interruptible(loaded.model):
                yield loaded

    def add(self, name: str) -> None:
        """Load one more model now."""
        entry = ModelEntry(name)
        entry.set_loaded(self._load(name))
        self.entries = {**self.entries, name: entry}  # a new dictionary: other threads may be iterating over the old

    def entry(self, name: str) -> ModelEntry:
        """The model of a name. A built-in one is loaded when it is asked for: chapters of the course need them."""
        if name not in self.entries and name in (*builtin_names(), *packaged_names()):
            with acquire(self._adding):
                if name not in self.entries:
                    self.add(name)
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


def _load(name: str) -> LoadedModel:
    from regard.inference.load_model import load_model

    return load_model(name)
