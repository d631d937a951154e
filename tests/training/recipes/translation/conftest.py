"""Fixtures shared with the translation tests of inference."""

from tests.inference.translation.conftest import *  # noqa: F403
