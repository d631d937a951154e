"""The models of a server: loaded one after the other in a thread, each used by one request at a time.

Depends on neither HTTP nor views; torch is imported in the loading thread, not before.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from regard.errors import InputError, RegardError, nearest
from regard.files.json_files import read_json
from regard.known import builtin_folder, builtins
from regard.server.request_queue import acquire, interruptible

if TYPE_CHECKING:
    from torch import nn

    from regard.interpret.attention.looking import Reader
    from regard.tasks.folder import Solved
    from regard.text import Tokenizer

    Pair = tuple[nn.Module, Reader]

__all__ = ["LOADER_NAME", "ModelEntry", "ModelKind", "ModelRegistry", "infer_kind"]

LOADER_NAME = "regard-models"  # name of the loading thread
MAX_CACHED = 4  # results of each kind that are kept per model
GENERATORS = ("gpt2", "t5")  # values of model_type

ModelKind = Literal["reader", "writer", "translator", "tuned", "unknown"]
Value = TypeVar("Value")


@dataclass
class ModelEntry:
    """One model: its name as given, its kind and its state.

    `kind` is inferred from the model folder when it is read, and stays when the folder disappears.
    """

    name: str
    state: Literal["loading", "ready", "failed"] = "loading"
    error: str = ""
    loaded: Pair | None = None
    fine_tuned: Solved | None = None  # of a fine-tuned model, whose encoder is in `loaded`
    lock: threading.Lock = field(default_factory=threading.Lock)
    kind: ModelKind = "unknown"

    def __post_init__(self) -> None:
        self.kind = infer_kind(self.name)
        self._cache: dict[tuple[str, Hashable], Any] = {}

    @property
    def reads_images(self) -> bool:
        """Whether the model reads images; known once it is loaded."""
        if self.loaded is None:
            return False
        from regard.models import Vit

        return isinstance(self.loaded[0], Vit)

    def set_loaded(self, loaded: Pair | Solved) -> None:
        """Store the loaded model. From now on requests need only memory, whatever happens to the folder."""
        self._cache = {}
        if isinstance(loaded, tuple):
            self.loaded, self.fine_tuned, self.kind = loaded, None, infer_kind(self.name, loaded)
        else:
            self.loaded, self.fine_tuned, self.kind = (loaded.model.encoder, loaded.tokenizer), loaded, "tuned"
        self.state, self.error = "ready", ""

    def cached(self, kind: str, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Return what `compute` gave for the same kind and key, or call it. Call it while the model is in use."""
        if (kind, key) in self._cache:
            value: Value = self._cache.pop((kind, key))
        else:
            value = compute()
            same_kind = [one for one in self._cache if one[0] == kind]
            for oldest in same_kind[: max(0, len(same_kind) + 1 - MAX_CACHED)]:
                del self._cache[oldest]
        self._cache[kind, key] = value
        return value

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

    def __init__(self, names: Sequence[str], *, load: Callable[[str], Pair | Solved] | None = None) -> None:
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
    def use(self, name: str) -> Iterator[tuple[nn.Module, Tokenizer | None]]:
        """Give exclusive use of the model and its tokenizer. Raises InputError when it is unknown or not loaded yet."""
        with self.use_any(name) as (model, reader):
            from regard.inference.translation.subwords import Subwords

            if isinstance(reader, Subwords):
                raise InputError(f"{name} translates; this view needs a model that reads one text")
            yield model, reader

    @contextmanager
    def use_any(self, name: str) -> Iterator[Pair]:
        """Like `use`, also for translation models, which have subwords instead of a tokenizer.

        Raises ClientDisconnected when the client goes while it waits for the model or during a forward pass.
        """
        entry = self.entry(name)
        if entry.state == "failed":
            self._retry(entry)
        if entry.state == "loading":
            raise InputError(f"{name} is still being loaded; try again in a moment")
        with acquire(entry.lock):
            assert entry.loaded is not None
            with interruptible(entry.loaded[0]):
                yield entry.loaded

    def fine_tuned(self, name: str) -> Solved:
        """A fine-tuned model with its task. It shares its encoder with `use`: call this inside `use`."""
        model = self.entry(name).fine_tuned
        if model is None:
            raise InputError(f"{name} is not tuned for a task; expected a folder that `regard train` wrote")
        return model

    def add(self, name: str) -> None:
        """Load one more model now."""
        entry = ModelEntry(name)
        entry.set_loaded(self._load(name))
        self.entries = {**self.entries, name: entry}  # a new dictionary: other threads may be iterating over the old

    def entry(self, name: str) -> ModelEntry:
        if name not in self.entries:
            raise InputError(f"the studio has no model {name!r}; {nearest(name, self.entries)}")
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


def infer_kind(name: str, loaded: Pair | None = None) -> ModelKind:
    """Infer from its folder what a model can do, before it is loaded.

    When there is no such folder, as for a model of the hub, `loaded` decides; without it the kind is unknown.
    """
    folder = builtin_folder(name) if name in builtins() else Path(os.path.expanduser(name))
    if (folder / "task.json").is_file():
        return "tuned"
    if (folder / "translate.json").is_file():
        return "translator"
    try:
        family = read_json(folder / "config.json")["model_type"]
    except (InputError, KeyError):
        return "unknown" if loaded is None else _kind_of_loaded(*loaded)
    return "writer" if family in GENERATORS else "reader"


def _kind_of_loaded(model: nn.Module, reader: Reader) -> ModelKind:
    from regard.inference.translation.subwords import Subwords
    from regard.models import T5, Gpt

    if isinstance(reader, Subwords):
        return "translator"
    return "writer" if isinstance(model, Gpt | T5) else "reader"


def _load(name: str) -> Pair | Solved:
    from regard.checkpoints.loading import find
    from regard.interpret.attention.subject import opened
    from regard.tasks.folder import is_solved, read_task

    folder = find(name)
    return read_task(folder) if is_solved(folder) else opened(name)
