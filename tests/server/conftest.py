"""Fixtures that start a local studio server and a browser."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.testclient import TestClient

from regard.server import app as application
from regard.server.http.access import ApiKeys
from regard.server.models.registry import ModelRegistry
from regard.server.run import HOST, create_server, listen
from regard.server.studio.routes import Studio
from tests.conftest import BEARER as BEARER
from tests.conftest import TOKEN, missing
from tests.server.local import local_registry

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page


AXE = Path(__file__).resolve().parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="session", params=["serve", "studio"])
def door(request: pytest.FixtureRequest) -> str:
    """The command whose server a test asks: what is promised for one holds for the other."""
    return str(request.param)


def create_app(studio: Studio | ModelRegistry, *, door: str = "studio", **options: Any) -> Starlette:
    """An application that needs TOKEN: a studio's, or that of `regard serve` with a file of keys."""
    if door == "serve":
        assert isinstance(studio, ModelRegistry)
        return application.create_app(studio, keys=ApiKeys([TOKEN]), **options)
    studio = Studio(studio) if isinstance(studio, ModelRegistry) else studio
    return application.create_app(studio.models, studio=studio, token=TOKEN, **options)


@pytest.fixture(scope="session")
def run_app() -> Iterator[Callable[[Starlette], str]]:
    """Serves an application in a thread until the tests end and returns its address."""
    servers: list[tuple[uvicorn.Server, threading.Thread]] = []

    def run(app: Starlette) -> str:
        taken = listen(0)
        server = create_server(app)
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
    registry = local_registry(["regard-bert"])
    return run_app(create_app(registry))


@pytest.fixture(scope="session")
def axe() -> str:
    """The accessibility checker, for `page.evaluate`: a page's content security policy blocks foreign scripts."""
    if not AXE.is_file():
        missing("axe-core is not here: python web/build.py --force")
    return AXE.read_text(encoding="utf-8")


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with watched(browser) as one:
        yield one


@pytest.fixture(scope="module")
def registry(folders: dict[str, str]) -> ModelRegistry:
    """The loaded models of the test file's `folders`."""
    found = local_registry(list(folders.values()))
    return found


@pytest.fixture(scope="module")
def own_studio(registry: ModelRegistry) -> Studio:
    """The state of a studio with the models of `registry`."""
    return Studio(registry)


@pytest.fixture(scope="module")
def address(page_built: None, own_studio: Studio, run_app: Callable[[Starlette], str]) -> str:
    """The address of a studio with the models of `registry`."""
    return run_app(create_app(own_studio))


@pytest.fixture
def client(own_studio: Studio) -> TestClient:
    return TestClient(create_app(own_studio), base_url="http://127.0.0.1", headers=BEARER)


def serious_findings(page: Page, axe: str) -> list[tuple[str, str]]:
    """The accessibility violations rated serious or critical: the rule and the first element."""
    page.locator("[aria-busy=true]").wait_for(state="detached")  # what is being replaced is pale
    page.evaluate(axe)
    report = page.evaluate("axe.run()")
    found = [one for one in report["violations"] if one["impact"] in ("serious", "critical")]
    return [(one["id"], one["nodes"][0]["html"]) for one in found]


def expect_url(page: Page, *parts: str, absent: str | None = None) -> None:
    """Wait until the page's address has these parts: the browser tells a change a moment after it is made."""
    page.wait_for_url(lambda url: all(part in url for part in parts) and (absent is None or absent not in url))


def open_share(page: Page) -> None:
    """Opens the menu with downloads and reproducing lines."""
    page.locator(".export-panel").evaluate("menu => { menu.open = true }")


def resize(page: Page, width: int, height: int = 900) -> None:
    """Sets the width of the window, and waits until the page, whose menu follows it, does not scroll sideways."""
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_function(
        "width => innerWidth === width && document.documentElement.scrollWidth <= innerWidth", arg=width
    )
    page.evaluate(TWO_FRAMES)


# Until the page is drawn again: what a change of the window or of the theme starts is done in the next frame.
TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def point_at(
    element: Locator, across: float, down: float, *, dx: float = 0, dy: float = 0, click: bool = False
) -> None:
    """Points at a place of an element that has come to rest: fractions of its width and height, and pixels from there.

    A box that is read once may be that of the page before it changed.
    """
    element.hover(trial=True)  # waits until it is visible, does not move and gets what the mouse does
    width, height = element.evaluate("one => [one.getBoundingClientRect().width, one.getBoundingClientRect().height]")
    act = element.click if click else element.hover
    act(position={"x": across * width + dx, "y": down * height + dy})


def download(page: Page, name: str, folder: Path) -> Path:
    open_share(page)
    with page.expect_download() as waiting:
        page.get_by_role("button", name=name, exact=True).click()
    file = folder / waiting.value.suggested_filename
    waiting.value.save_as(file)
    return file


@contextmanager
def expect_view(page: Page, verb: str) -> Iterator[dict[str, Any]]:
    """Yields a dict that is filled with the view data the page requests meanwhile, by repeating that request."""
    data: dict[str, Any] = {}
    with page.expect_request(f"**/v1/{verb}/events") as waiting:
        yield data
    request = waiting.value
    answer = page.request.post(request.url.replace("/events", "/view"), data=request.post_data_json)
    data |= answer.json()


def addresses(text: str) -> set[str]:
    return set(re.findall(r"(?:https?|wss?)://[^\s\"'<>`)]+", text))


@contextmanager
def watched(browser: Browser, *, seconds: int = 30) -> Iterator[Page]:
    """A page that must not log errors or contact another machine; `seconds` is its timeout."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, accept_downloads=True, reduced_motion="reduce"
    )
    page = context.new_page()
    page.set_default_timeout(1000 * seconds)
    complaints: list[str] = []
    page.on("console", lambda one: complaints.append(one.text) if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: None if _is_local(request.url) else complaints.append(request.url))
    yield page
    context.close()
    assert complaints == []


def _is_local(url: str) -> bool:
    return urlsplit(url).scheme in ("data", "blob", "file") or urlsplit(url).hostname == "127.0.0.1"
