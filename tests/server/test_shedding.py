"""Requests to a full server: the short path answers as the ordinary one does, and leaves anything unusual to it."""

from __future__ import annotations

import pytest
from pydantic import BaseModel
from starlette.responses import Response
from starlette.routing import Route

from regard.server.http.endpoint import AdmissionControl, Endpoint, Limits, RequestContext
from regard.server.http.gateway import Reporter
from regard.server.http.metrics import ServerMetrics
from regard.server.http.shedding import Shedder

BODY = b'{"inputs": "a film"}'


class Empty(BaseModel):
    """A body without fields."""


async def answer(body: Empty, context: RequestContext) -> Response:
    return Response()


def request(*headers: str, path: str = "/embed", length: int = len(BODY), body: bytes = BODY) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {length}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


@pytest.fixture
def admission() -> AdmissionControl:
    return AdmissionControl(Limits(max_concurrent_requests=1))


@pytest.fixture
def metrics() -> ServerMetrics:
    return ServerMetrics()


@pytest.fixture
def shedder(admission: AdmissionControl, metrics: ServerMetrics) -> Shedder:
    routes = [
        Route("/embed", Endpoint(admission, Empty, answer), methods=["POST"]),
        Route("/v1/{name}", Endpoint(admission, Empty, answer), methods=["POST"]),
    ]
    return Shedder(admission, routes, Reporter(metrics=metrics))


def test_only_a_full_server_refuses(shedder: Shedder, admission: AdmissionControl, metrics: ServerMetrics) -> None:
    assert shedder(request(), "me") is None
    with admission.slots.hold("me"):
        found = shedder(request("X-Request-ID: mine-1"), "me")
        assert found is not None and found.startswith(b"HTTP/1.1 429 ")
        head, _, body = found.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        assert {b"retry-after: 2", b"x-request-id: mine-1", b"content-length: %d" % len(body)} <= set(lines)
        assert b"Overloaded" in body
    assert shedder(request(), "me") is None
    assert b'te_request_failure{err="overloaded"} 1.0' in metrics.text()


@pytest.mark.parametrize(
    "data",
    [
        request(length=len(BODY) + 1),
        request(length=len(BODY) - 1),
        request() + b"POST ",
        request("Content-Length: 20"),
        request("Content-Length: none"),
        request("Transfer-Encoding: chunked"),
        request("Connection: close"),
        request("Expect: 100-continue"),
        request(path="/v1/fill"),
        request(path="/other"),
        request(path="/embed?a=b"),
        request("a bad header"),
        request().replace(b"POST", b"GET"),
        request().replace(b"HTTP/1.1", b"HTTP/1.0"),
        request()[:30],
        b"",
    ],
)
def test_anything_unusual_is_parsed(shedder: Shedder, admission: AdmissionControl, data: bytes) -> None:
    with admission.slots.hold("me"):
        assert shedder(data, "me") is None


def test_an_odd_id_is_replaced(shedder: Shedder, admission: AdmissionControl) -> None:
    with admission.slots.hold("me"):
        found = shedder(request('X-Request-ID: "}{'), "me")
    assert found is not None and b'"}{' not in found


def test_an_address_that_holds_its_slots_is_refused_and_others_are_not(metrics: ServerMetrics) -> None:
    admission = AdmissionControl(Limits(max_concurrent_requests=4, max_client_requests=1))
    routes = [Route("/v1/embeddings", Endpoint(admission, Empty, answer), methods=["POST"])]
    shedder = Shedder(admission, routes, Reporter(metrics=metrics))
    with admission.slots.hold("127.0.0.1:5000"):
        found = shedder(request(path="/v1/embeddings"), "127.0.0.1:6000")
        assert found is not None and b"1 requests of this client" in found and b'"rate_limit_error"' in found
        assert shedder(request(path="/v1/embeddings"), "127.0.0.2:6000") is None
