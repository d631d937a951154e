"""What the local cache of the hub holds: models with their revisions, sizes and last use; and removing them.

Other programs share this cache. Nothing outside of it, and nothing in it but models, is listed or removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from regard.errors import InputError, suggest


class CachedRevision(BaseModel):
    """One commit of a model; `refs` are the branches and tags that it was fetched by, `last_used` is in UTC.

    Revisions share files: `size` counts all files of this one, and removing it frees less if others have the same.
    """

    name: str
    commit: str
    refs: list[str]
    size: int
    last_used: str
    folder: str


def cache_place() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def cached_revisions() -> list[CachedRevision]:
    """Return the models in the cache, the most recently used first."""
    models = sorted(_models(), key=lambda model: (-model.last_accessed, model.repo_id))
    return [
        CachedRevision(
            name=model.repo_id,
            commit=revision.commit_hash,
            refs=sorted(revision.refs),
            size=revision.size_on_disk,
            last_used=datetime.fromtimestamp(model.last_accessed, UTC).strftime("%Y-%m-%d %H:%M"),
            folder=str(revision.snapshot_path),
        )
        for model in models
        for revision in sorted(model.revisions, key=lambda revision: str(revision.commit_hash))
    ]


def size_on_disk() -> int:
    """Return the bytes of all models in the cache."""
    return sum(model.size_on_disk for model in _models())


def choose_revisions(name: str) -> list[CachedRevision]:
    """Return what is removed for a name: all revisions of a model, one of NAME@REVISION, or everything for `all`."""
    entries = cached_revisions()
    if name == "all":
        return entries
    wanted, pinned, revision = name.partition("@")
    chosen = [one for one in entries if one.name == wanted and (not pinned or revision in (one.commit, *one.refs))]
    if not chosen:
        known = {one.name if wanted != one.name else f"{one.name}@{one.commit}" for one in entries}
        hint = suggest(name, known) if known else "it holds no models"
        raise InputError(f"{name}: not in the cache of the hub ({cache_place()}); {hint}")
    return chosen


def remove_revisions(entries: Sequence[CachedRevision]) -> int:
    """Remove revisions from the cache; return the number of bytes that this frees."""
    from huggingface_hub import scan_cache_dir

    if not entries:
        return 0
    names = {entry.name for entry in entries}
    models = frozenset(model for model in _models() if model.repo_id in names)
    strategy = replace(scan_cache_dir(cache_place()), repos=models).delete_revisions(*(one.commit for one in entries))
    freed: int = strategy.expected_freed_size
    strategy.execute()
    return freed


def _models() -> list[Any]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        return [found for found in scan_cache_dir(cache_place()).repos if found.repo_type == "model"]
    except CacheNotFound:
        return []
