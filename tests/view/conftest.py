"""Pages need the built script."""

from __future__ import annotations

from tests.studio.conftest import page_built as page_built
