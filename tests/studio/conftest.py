"""A studio that runs on this machine, and a browser to look at it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvicorn
from starlette.applications import Starlette

from regard.studio.app import make_app
from regard.studio.serve import HOST, listen
from regard.studio.shelf import Shelf
from regard.view.bundle import built

if TYPE_CHECKING:
    from playwright.sync_api import Browser


AXE = Path(__file__).resolve().parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"


def missing(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, and CI must have it")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def page_built() -> None:
    if not built():
        missing("the page was not built: python web/build.py")


@pytest.fixture(scope="session")
def run_app() -> Iterator[Callable[[Starlette], str]]:
    """Serve an application in a thread until the tests end; gives its address."""
    servers: list[tuple[uvicorn.Server, threading.Thread]] = []

    def run(app: Starlette) -> str:
        taken = listen(0)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
        thread.start()
        servers.append((server, thread))
        return f"http://{HOST}:{taken.getsockname()[1]}"

    yield run
    for server, thread in servers:
        server.should_exit = True
        thread.join(timeout=10)


@pytest.fixture(scope="session")
def studio(page_built: None, run_app: Callable[[Starlette], str]) -> str:
    """The address of a studio with the built-in model, loaded."""
    shelf = Shelf(["regard-bert"])
    shelf.start().join()
    return run_app(make_app(shelf))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        missing("Chromium is not here (Debian: apt-get install chromium); this test needs a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Chromium's own sandbox cannot be set up as root or in most containers; the pages are ours.
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The accessibility checker, to be given to `page.evaluate`: a page's own policy lets no foreign script in."""
    if not AXE.is_file():
        missing("axe-core is not here: python web/build.py --force")
    return AXE.read_text(encoding="utf-8")
