"""The models of a server: loaded one after the other in a thread, each used by one request at a time.

Depends on neither HTTP nor views; torch is imported in the loading thread, not before.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from regard.errors import InputError, RegardError, suggest
from regard.files.json_files import read_json
from regard.known import builtin_folder, builtin_names
from regard.models.family import can, families
from regard.server.request_queue import acquire, interruptible

if TYPE_CHECKING:
    from regard.checkpoints.loaded_model import LoadedModel
    from regard.tasks.fine_tuned_model import FineTunedModel

LOADER_NAME = "regard-models"  # name of the loading thread

ModelKind = Literal["reader", "writer", "translator", "tuned", "unknown"]
T = TypeVar("T")


@dataclass
class ModelEntry:
    """One model: its name as given, its kind and its state.

    `kind` is inferred from the model folder when it is read, and stays when the folder disappears.
    """

    name: str
    state: Literal["loading", "ready", "failed"] = "loading"
    error: str = ""
    loaded: LoadedModel | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    kind: ModelKind = "unknown"

    def __post_init__(self) -> None:
        self.kind = infer_kind(self.name)

    @property
    def reads_images(self) -> bool:
        """Whether the model reads images; known once it is loaded."""
        if self.loaded is None:
            return False

        return can(self.loaded.model, "image")

    def set_loaded(self, loaded: LoadedModel) -> None:
        """Store the loaded model. From now on requests need only memory, whatever happens to the folder."""
        self.loaded = replace(loaded, cache={})
        self.kind, self.state, self.error = infer_kind(self.name, loaded), "ready", ""

    def cached(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the model's earlier result for this key, or compute it. Call it while the model is in use."""
        assert self.loaded is not None
        return self.loaded.cached(key, compute)

    def to_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "kind": self.kind,
            "state": self.state,
            "error": self.error,
            "sees": self.reads_images,
        }


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

    def states(self) -> list[dict[str, object]]:
        return [entry.to_dict() for entry in self.entries.values()]

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

    @contextmanager
    def use_text_model(self, name: str) -> Iterator[LoadedModel]:
        """Like `use`, but not for translation models, which have subwords instead of a tokenizer."""
        with self.use(name) as loaded:
            from regard.inference.translation.subwords import Subwords

            if isinstance(loaded.tokenizer, Subwords):
                raise InputError(f"{name} translates; this view needs a model that reads one text")
            yield loaded

    def fine_tuned(self, name: str) -> FineTunedModel:
        """A fine-tuned model with its task. It shares its encoder with `use`: call this inside `use`."""
        from regard.tasks.fine_tuned_model import fine_tuned_of

        loaded = self.entry(name).loaded
        assert loaded is not None
        return fine_tuned_of(loaded)

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


def infer_kind(name: str, loaded: LoadedModel | None = None) -> ModelKind:
    """Infer from its folder what a model can do, before it is loaded.

    When there is no such folder, as for a model of the hub, `loaded` decides; without it the kind is unknown.
    """
    if loaded is not None and loaded.fine_tuned is not None:
        return "tuned"
    folder = builtin_folder(name) if name in builtin_names() else Path(os.path.expanduser(name))
    if (folder / "task.json").is_file():
        return "tuned"
    if (folder / "translate.json").is_file():
        return "translator"
    try:
        model_type = read_json(folder / "config.json")["model_type"]
    except (InputError, KeyError):
        return "unknown" if loaded is None else _kind_of_loaded(loaded)
    family = families().get(str(model_type).removeprefix("regard-"))
    return "writer" if family is not None and family.can("text-generation") else "reader"


def _kind_of_loaded(loaded: LoadedModel) -> ModelKind:
    from regard.inference.translation.subwords import Subwords

    if isinstance(loaded.tokenizer, Subwords):
        return "translator"
    return "writer" if can(loaded.model, "text-generation") else "reader"


def _load(name: str) -> LoadedModel:
    from regard.inference.load_model import load_model

    return load_model(name)
