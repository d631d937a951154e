"""Random samples of texts, for analyses that thousands of texts would make slow and unreadable."""

from __future__ import annotations

import random

from regard.errors import InputError


def sample_indices(count: int, limit: int, seed: int = 0) -> list[int]:
    """At most `limit` of the indices below `count`, sorted; the same seed gives the same ones."""
    if limit < 1:
        raise InputError(f"the limit is {limit}; expected 1 or more texts")
    return list(range(count)) if count <= limit else sorted(random.Random(seed).sample(range(count), limit))


def sampling_note(total: int, used: int, seed: int) -> list[str]:
    """A note for the reader when some texts were left out."""
    if used >= total:
        return []
    return [f"{used:,} of {total:,} texts were sampled at random (seed {seed}); {total - used:,} are left out"]
