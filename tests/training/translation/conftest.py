"""The fixtures of the translation tests."""

from tests.inference.translation.conftest import *  # noqa: F403
