"""What the local cache of the hub holds: models with their revisions, sizes and last use; and removing them.

Other programs share this cache. Nothing outside of it, and nothing in it but models, is listed or removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from regard.checkpoints.hub import split_revision
from regard.errors import InputError, suggest


@dataclass(frozen=True)
class CachedRevision:
    """One commit of a model; `refs` are the branches and tags that it was fetched by, `last_used` is in UTC.

    Revisions share files: `size` counts all files of this one, and removing it frees less if others have the same.
    """

    name: str
    commit: str
    refs: tuple[str, ...]
    size: int
    last_used: str
    folder: str


def cache_place() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def cached_revisions() -> list[CachedRevision]:
    """Return the models in the cache, the most recently used first."""
    found = [
        (
            repository.last_accessed,
            CachedRevision(
                name=repository.repo_id,
                commit=revision.commit_hash,
                refs=tuple(sorted(revision.refs)),
                size=revision.size_on_disk,
                last_used=datetime.fromtimestamp(repository.last_accessed, UTC).strftime("%Y-%m-%d %H:%M"),
                folder=str(revision.snapshot_path),
            ),
        )
        for repository in _models()
        for revision in repository.revisions
    ]
    found.sort(key=lambda entry: (-entry[0], entry[1].name, entry[1].commit))
    return [entry for _, entry in found]


def size_on_disk() -> int:
    """Return the bytes of all models in the cache."""
    return sum(repository.size_on_disk for repository in _models())


def choose_revisions(name: str) -> list[CachedRevision]:
    """Return what is removed for a name: all revisions of a model, one of NAME@REVISION, or everything for `all`."""
    entries = cached_revisions()
    wanted, revision = split_revision(name, "")
    chosen = [
        entry
        for entry in entries
        if name == "all"
        or (entry.name == wanted and (not revision or revision == entry.commit or revision in entry.refs))
    ]
    if not chosen and name != "all":
        known = {choice for entry in entries for choice in (entry.name, f"{entry.name}@{entry.commit}")}
        hint = suggest(name, known) if known else "it holds no models"
        raise InputError(f"{name}: not in the cache of the hub ({cache_place()}); {hint}")
    return chosen


def remove_revisions(entries: Sequence[CachedRevision]) -> int:
    """Remove revisions from the cache; return the number of bytes that this frees."""
    from huggingface_hub import scan_cache_dir

    if not entries:
        return 0
    names = {entry.name for entry in entries}
    models = frozenset(repository for repository in _models() if repository.repo_id in names)
    strategy = replace(scan_cache_dir(cache_place()), repos=models).delete_revisions(*(one.commit for one in entries))
    freed: int = strategy.expected_freed_size
    strategy.execute()
    return freed


def _models() -> list[Any]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        found = scan_cache_dir(cache_place())
    except CacheNotFound:
        return []
    return [repository for repository in found.repos if repository.repo_type == "model"]
