"""`regard cache`: the models in the local cache of the hub."""

from __future__ import annotations

import sys

from regard.checkpoints.hub_cache import (
    CachedRevision,
    cache_place,
    cached_revisions,
    choose_revisions,
    remove_revisions,
    size_on_disk,
)
from regard.errors import InputError
from regard.render.result import Result, Table
from regard.verbs.base import Models, Request, option, verb
from regard.wording import count_of, size_text


class CacheResult(Result):
    """The cache's folder, its models, their bytes together; and with `--clear` what was removed."""

    folder: str
    entries: list[CachedRevision]
    size: int
    removed: list[CachedRevision]
    freed: int

    def to_text(self) -> str:
        lines = [f"Removed {entry.name}@{entry.commit[:12]}" for entry in self.removed]
        if self.removed:
            lines.append(f"Freed {size_text(self.freed)}")
        width = max((len(entry.name) for entry in self.entries), default=0)
        lines += [
            f"{entry.name:<{width}}  {entry.commit[:12]}  {size_text(entry.size):>9}  {entry.last_used}  "
            f"{', '.join(entry.refs)}".rstrip()
            for entry in self.entries
        ]
        held = count_of(len(self.entries), "revision") if self.entries else "no models"
        return "\n".join([*lines, f"{self.folder}: {held}, {size_text(self.size)}"])

    def to_table(self) -> Table:
        return (
            ("name", "commit", "refs", "size", "last_used"),
            [(one.name, one.commit, " ".join(one.refs), one.size, one.last_used) for one in self.entries],
        )


class CacheRequest(Request):
    clear: str | None = option(
        None, help="Remove a model, one of its revisions, or all models from the cache.", metavar="NAME[@REVISION]|all"
    )
    yes: bool = option(False, "-y", help="Remove without asking.")


@verb(CacheRequest, result="regard.verbs.cache:CacheResult", http=False, formats=(".csv", ".json"))
def cache(request: CacheRequest, models: Models) -> CacheResult:
    """Show the models in the local cache of the Hugging Face hub, or remove some.

    Other programs use this cache too: a model that is removed is downloaded again when one of them needs it. The
    folder is $HF_HUB_CACHE, or that of $HF_HOME, or ~/.cache/huggingface/hub.

    Example: regard cache --clear sentence-transformers/all-MiniLM-L6-v2
    """
    removed, freed = list[CachedRevision](), 0
    if request.clear is not None:
        removed = choose_revisions(request.clear)
        names = ", ".join(dict.fromkeys(entry.name for entry in removed))
        if removed and not request.yes:
            size = size_text(sum(entry.size for entry in removed))
            _ask(f"Remove {names} ({count_of(len(removed), 'revision')}, {size}) from {cache_place()}?")
        freed = remove_revisions(removed)
    return CacheResult(
        folder=str(cache_place()), entries=cached_revisions(), size=size_on_disk(), removed=removed, freed=freed
    )


def _ask(question: str) -> None:
    """Ask in the terminal; InputError unless the answer is yes."""
    if not sys.stdin.isatty():
        raise InputError(f"{question} Nothing was removed; add --yes to remove it without a terminal")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InputError("nothing was removed")
