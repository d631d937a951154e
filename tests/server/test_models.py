"""The model states shown on the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette

from regard.errors import InputError
from regard.inference.load_model import load_model
from tests.server.conftest import create_app
from tests.server.local import local_registry

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_model_that_loads_again_is_shown_as_ready(
    page_built: None, run_app: Callable[[Starlette], str], browser: Browser
) -> None:
    tries: list[str] = []

    def load(name: str) -> Any:
        tries.append(name)
        if len(tries) == 1:
            raise InputError("its folder is not there")
        return load_model("regard-bert")

    registry = local_registry(["a-model"], load=load)
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(
            f"{run_app(create_app(registry))}/#attention"
        )  # and its first request makes the studio load the model again
        page.locator(".states li.ready").wait_for(state="attached")
        assert tries == ["a-model", "a-model"]
        assert "its folder is not there" not in (page.locator(".states").text_content() or "")
    finally:
        context.close()
