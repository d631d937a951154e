"""Access to the studio requires the token, over HTTP and in a browser that opens the printed address; `regard serve`
requires a key."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette

from regard.server import app as application
from regard.server.http.access import cookie_name, generate_token
from regard.server.studio.routes import Studio
from tests.server.conftest import TOKEN, create_app, expect_url
from tests.server.local import local_registry

pytest.importorskip("playwright")
from playwright.sync_api import Browser, expect


def send_request(address: str, method: str, path: str, **headers: str) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    body = "{}" if method == "POST" else None
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, response.headers, text


@pytest.fixture(scope="module")
def tiny(tiny_bert_folder: Path, run_app: Callable[[Starlette], str]) -> str:
    registry = local_registry([str(tiny_bert_folder)])
    return run_app(create_app(registry))


@pytest.fixture(scope="module")
def with_keys(tiny_bert_folder: Path, run_app: Callable[[Starlette], str]) -> str:
    """`regard serve`, which wants a key."""
    return run_app(create_app(local_registry([f"tiny={tiny_bert_folder}"], door="serve"), door="serve"))


@pytest.mark.parametrize("path", ["/", "/nothing", "/metrics", "/v1/models", "/openapi.json", "/v1/look", "/embed"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
def test_requests_without_a_key_are_rejected(with_keys: str, method: str, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": f"Bearer {TOKEN}x"}, {"Cookie": f"a={TOKEN}"}):
        status, headers_received, text = send_request(with_keys, method, path, **headers)
        assert status == 401 and headers_received["set-cookie"] is None, headers
        assert TOKEN not in text and "tiny" not in text
    assert send_request(with_keys, "GET", f"/v1/models?token={TOKEN}")[0] == 401
    assert send_request(with_keys, "GET", "/v1/models", Authorization=f"Bearer {TOKEN}")[0] == 200
    assert send_request(with_keys, "GET", "/health")[0] == 200  # of a supervisor, which has no key


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("HEAD", "/"),
        ("GET", "/api/models"),
        ("POST", "/v1/look/view"),
        ("POST", "/v1/look/page"),
        ("POST", "/v1/generate/events"),
        ("POST", "/api/train"),
        ("POST", "/api/cancel-training"),
        ("GET", "/nothing"),
        ("OPTIONS", "/api/models"),
        ("GET", f"/api/models?token={TOKEN}"),
        ("POST", f"/?token={TOKEN}"),
    ],
)
def test_requests_without_the_token_are_rejected(tiny: str, method: str, path: str) -> None:
    port = urlsplit(tiny).port
    wrong: list[dict[str, str]] = [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Cookie": f"regard-{port}={TOKEN[:-1]}"},
        {"Cookie": f"regard-{(port or 0) + 1}={TOKEN}"},
        {"Cookie": f"regard-{port}=\xff"},
    ]
    for headers in wrong:
        status, headers_received, text = send_request(tiny, method, path, **headers)
        assert status == 401 and headers_received["set-cookie"] is None, headers
        assert TOKEN not in text and "the film" not in text
        assert method == "HEAD" or "regard studio" in text  # the message says what to open


def test_the_printed_address_signs_a_browser_in(tiny: str) -> None:
    port = urlsplit(tiny).port
    status, headers, _ = send_request(tiny, "GET", f"/?token={TOKEN}")
    assert (status, headers["location"]) == (303, "/")
    cookie, *properties = [part.strip().lower() for part in headers["set-cookie"].split(";")]
    assert cookie == f"regard-{port}={TOKEN}".lower()
    assert {"httponly", "samesite=strict", "path=/"} <= set(properties)
    assert send_request(tiny, "GET", "/api/models", Cookie=f"other=1; regard-{port}={TOKEN}")[0] == 200
    status, headers, _ = send_request(tiny, "GET", "/?token=old", Cookie=f"regard-{port}={TOKEN}")
    assert (status, headers["location"]) == (303, "/")  # an outdated address does not sign the browser out
    assert send_request(tiny, "GET", "/?token=old")[0] == 401


def test_scripts_send_the_token_as_a_header(tiny: str) -> None:
    assert send_request(tiny, "GET", "/api/models", Authorization=f"Bearer {TOKEN}")[0] == 200
    assert send_request(tiny, "GET", "/api/models", Authorization=f"bearer {TOKEN}")[0] == 200


def test_tokens_are_unique_and_long() -> None:
    tokens = {generate_token() for _ in range(100)}
    assert len(tokens) == 100 and min(map(len, tokens)) >= 43
    assert cookie_name(1) != cookie_name(2)
    registry = local_registry([])
    with pytest.raises(ValueError, match="empty"):
        application.create_app(registry, studio=Studio(registry), token="")


def test_a_browser_opens_the_printed_address(page_built: None, browser: Browser, tiny: str) -> None:
    context = browser.new_context(extra_http_headers={})
    page = context.new_page()
    try:
        response = page.goto(tiny)
        assert response is not None and response.status == 401
        expect(page.get_by_text("Open the address that regard studio printed")).to_be_visible()
        page.goto(f"{tiny}/?token={TOKEN}#attention?text=a+good+day")
        page.wait_for_selector(".export-panel")
        expect_url(page, "#attention?text=a+good+day", absent=TOKEN)
        assert page.evaluate("document.cookie") == ""  # no script can read it
        page.goto(f"{tiny}/#attention?text=the+film")  # from now on the cookie is sufficient
        page.wait_for_selector(".export-panel")
        context.clear_cookies()  # as after a restart of the studio, which creates a new token
        page.locator("textarea[name=text]").fill("another film")
        page.get_by_role("button", name="Show", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("open the address that `regard studio` printed")
    finally:
        context.close()
