"""Fixtures that serve every test: the shared data beside the project, where it is there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Find a file of the data sets that lie beside the project; they are never part of it."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            if os.environ.get("CI") == "true":
                pytest.fail(f"{path} is missing, and CI must have it")
            pytest.skip(f"{path} is not here; this test needs that data set")
        return path

    return find
