"""The models of a studio: loaded one after the other in a thread, each used by one request at a time.

Knows names, states and locks. Knows nothing of HTTP or views; torch is imported in the thread, not before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from regard.errors import InputError, RegardError, nearest
from regard.server.model_kind import ModelKind, infer_kind
from regard.server.request_queue import stopping, taken
from regard.server.workspace import Workspace

if TYPE_CHECKING:
    from torch import nn

    from regard.interpret.attention.recording import TextTokenizer
    from regard.tasks.folder import Solved
    from regard.text import Tokenizer

    Pair = tuple[nn.Module, TextTokenizer]

__all__ = ["LOADER", "ModelEntry", "ModelRegistry", "State"]

LOADER = "regard-models"  # the name of the thread that loads them

State = Literal["loading", "ready", "failed"]


@dataclass
class ModelEntry:
    """One model: its name as it was given, what it is good for, and how far it is.

    `kind` is what its folder said when it was last read: it stays where the folder has vanished.
    """

    name: str
    state: State = "loading"
    error: str = ""
    loaded: Pair | None = None
    solved: Solved | None = None  # of a tuned model, whose encoder is in `loaded`
    lock: threading.Lock = field(default_factory=threading.Lock)
    kind: ModelKind = "unknown"

    def __post_init__(self) -> None:
        self.kind = infer_kind(self.name)

    @property
    def sees(self) -> bool:
        """Whether it looks at pictures; known once it is loaded."""
        if self.loaded is None:
            return False
        from regard.models import Vit

        return isinstance(self.loaded[0], Vit)

    def fill(self, found: Pair | Solved) -> None:
        """It was read: all that is asked of it from now on is in memory, whatever becomes of its folder."""
        if isinstance(found, tuple):
            self.loaded, self.solved, self.kind = found, None, infer_kind(self.name, found)
        else:
            self.loaded, self.solved, self.kind = (found.model.encoder, found.tokenizer), found, "tuned"
        self.state, self.error = "ready", ""

    def document(self) -> dict[str, object]:
        return {"name": self.name, "kind": self.kind, "state": self.state, "error": self.error, "sees": self.sees}


class ModelRegistry:
    """Models by name. `start` begins to load them; `use` lends one out. New ones come from the workspace."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        load: Callable[[str], Pair | Solved] | None = None,
        workspace: Workspace | None = None,
    ) -> None:
        self.workspace = workspace or Workspace()
        self.entries = {name: ModelEntry(name) for name in names}
        self._load = load or _load
        self.caches: WeakKeyDictionary[nn.Module, dict[Hashable, Any]] = WeakKeyDictionary()  # results of slow analyses

    def start(self) -> threading.Thread:
        """Load all models behind the caller's back, in their order."""
        thread = threading.Thread(target=self._fill, name=LOADER, daemon=True)
        thread.start()
        return thread

    def states(self) -> list[dict[str, object]]:
        return [entry.document() for entry in self.entries.values()]

    @contextmanager
    def use(self, name: str) -> Iterator[tuple[nn.Module, Tokenizer | None]]:
        """The model and its tokenizer, for one user at a time; an `InputError` where it is not there or not yet."""
        with self.use_any(name) as (model, reader):
            from regard.inference.translation.subwords import Subwords

            if isinstance(reader, Subwords):
                raise InputError(f"{name} translates; this view needs a model that reads one text")
            yield model, reader

    @contextmanager
    def use_any(self, name: str) -> Iterator[Pair]:
        """The same, also of a model that translates and so has subwords instead of a tokenizer.

        Where the asker leaves, waiting for the model and passes through it end with `ClientDisconnected`.
        """
        entry = self._entry(name)
        if entry.state == "failed":
            self._again(entry)
        if entry.state == "loading":
            raise InputError(f"{name} is still being loaded; try again in a moment")
        with taken(entry.lock):
            assert entry.loaded is not None
            with stopping(entry.loaded[0]):
                yield entry.loaded

    def solved(self, name: str) -> Solved:
        """A tuned model with its task; its encoder is what `use` lends, so it is asked for while that is lent."""
        found = self._entry(name).solved
        if found is None:
            raise InputError(f"{name} is not tuned for a task; expected a folder that `regard train` wrote")
        return found

    def add(self, name: str) -> None:
        """One model more, read at once. In a new dictionary: others may be walking through the one that is there."""
        entry = ModelEntry(name)
        entry.fill(self._load(name))
        self.entries = {**self.entries, name: entry}

    def _entry(self, name: str) -> ModelEntry:
        if name not in self.entries:
            raise InputError(f"the studio has no model {name!r}; {nearest(name, self.entries)}")
        return self.entries[name]

    def _again(self, entry: ModelEntry) -> None:
        """A folder that was missing may be back: who asks for a failed model has it tried once more."""
        with taken(entry.lock):
            if entry.state == "failed":
                self._fetch(entry)
        if entry.state == "failed":
            raise InputError(f"{entry.name} could not be loaded: {entry.error}")

    def _fill(self) -> None:
        for entry in self.entries.values():
            with entry.lock:
                self._fetch(entry)

    def _fetch(self, entry: ModelEntry) -> None:
        try:
            entry.fill(self._load(entry.name))
        except RegardError as error:
            entry.state, entry.error = "failed", str(error)
        except Exception as error:  # whatever is wrong with one model, the page and the others go on
            entry.state, entry.error = "failed", f"{type(error).__name__}: {error}"


def _load(name: str) -> Pair | Solved:
    from regard.checkpoints.loading import find_folder
    from regard.inference.load_model import load_model
    from regard.tasks.folder import is_solved, read_task

    folder = find_folder(name)
    if is_solved(folder):
        return read_task(folder)
    loaded = load_model(name)
    return loaded.model, loaded.tokenizer
