"""The fixture of all parity tests: a tiny transformers model, and Regard's model loaded from its saved folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.parity.references import Pair, pair_of


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """Returns a reference by name; each is made once and must not be modified."""
    made: dict[str, Pair] = {}

    def make(name: str) -> Pair:
        if name not in made:
            folder: Path = tmp_path_factory.mktemp(name)
            made[name] = pair_of(name, folder)
        return made[name]

    return make
