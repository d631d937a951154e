"""Slow clients, too many clients, large bodies and non-HTTP data: each gets a complete response."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette

from regard.cancellation import Cancelled, check_cancelled
from regard.server.http import connection
from regard.server.http.connection import BodyReader
from regard.server.models.verb_job import VerbJob
from tests.server.conftest import TOKEN, create_app
from tests.server.local import run_verb_stub, stub_registry

HEAD = "POST /v1/fill HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
SIGNED = f"{HEAD}Authorization: Bearer {TOKEN}\r\n"


@contextmanager
def connect(address: str) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", urlsplit(address).port or 0), timeout=30) as found:
        yield found


def read_response(client: socket.socket) -> tuple[int, str]:
    """Reads until the server closes the connection; a reset is an error."""
    received = b""
    while piece := client.recv(1 << 16):
        received += piece
    return (int(received[9:12]) if received.startswith(b"HTTP") else 0), received.decode("latin-1")


def send(address: str, content: str | bytes) -> tuple[int, str]:
    with connect(address) as client:
        client.sendall(content.encode("latin-1") if isinstance(content, str) else content)
        return read_response(client)


@pytest.fixture(scope="module")
def address(run_app: Callable[[Starlette], str], door: str) -> str:
    app = create_app(
        stub_registry(run_verb_stub(fill=lambda host, arguments: dict(arguments)), door=door),
        door=door,
        body_reader=BodyReader(timeout=0.3),
    )
    return run_app(app)


def test_a_slow_body_times_out_with_a_response(address: str) -> None:
    for trickles in (False, True):
        with connect(address) as client:
            begin = time.monotonic()
            client.sendall(f"{SIGNED}Content-Length: 1000\r\nConnection: close\r\n\r\n".encode())
            client.settimeout(0.05)
            received = b""
            while b"seconds" not in received and time.monotonic() < begin + 30:
                try:
                    received += client.recv(4096)
                except TimeoutError:
                    if trickles:
                        client.sendall(b" ")
            assert received.startswith(b"HTTP/1.1 408") and b"0.3 seconds" in received


def test_slow_headers_time_out_with_a_response_and_idle_connections_are_closed(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(address) as client:  # the next request on a connection that has had a response
        client.sendall(f"{SIGNED}Content-Length: 2\r\n\r\n{{}}".encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
        monkeypatch.setattr(connection, "HEADER_SECONDS", 0.2)
        client.sendall(b"GET")
        assert "HTTP/1.1 408" in read_response(client)[1]
    assert send(address, "")[0] == 0
    monkeypatch.setattr(connection, "HEADER_SECONDS", 1.0)  # enough for a busy machine to send the first byte
    assert send(address, SIGNED)[0] == 408


@pytest.mark.parametrize("sign", [HEAD, SIGNED], ids=["no token", "token"])
def test_a_large_body_gets_its_response(address: str, sign: str) -> None:
    """The server does not read all of it, but must not reset the connection while the client sends."""
    expected = {HEAD: 401, SIGNED: 413}[sign]
    body = b'"' + b"a" * 5_000_000 + b'"'
    for close in ("Connection: close\r\n", ""):
        with connect(address) as client:
            client.sendall(f"{sign}{close}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert int(client.recv(4096)[9:12]) == expected
            assert not close or read_response(client)[0] >= 0  # and an orderly close


def test_an_answer_before_the_body_says_that_the_connection_ends(address: str) -> None:
    """A client whose body follows its headers in a write of its own would send its next request there."""
    for close in ("Connection: close\r\n", ""):
        with connect(address) as client:
            client.sendall(f"{HEAD}{close}Content-Length: 2\r\n\r\n".encode())
            status, answer = read_response(client)
            assert status == 401 and answer.lower().count("connection: close") == 1


def test_the_discarded_part_of_a_body_is_bounded(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_EXCESS_BYTES", 100_000)
    monkeypatch.setattr(connection, "LINGER_BYTES", 100_000)
    with connect(address) as client:
        client.sendall(f"{SIGNED}Content-Length: 900000000\r\n\r\n".encode())
        with pytest.raises(OSError):  # long before all of it is sent
            for _ in range(900):
                client.sendall(b"a" * 1_000_000)


@pytest.mark.parametrize(
    "content",
    [
        "nonsense\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        f"{SIGNED}Content-Length: -1\r\n\r\n",
        f"{SIGNED}Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        f"{SIGNED}X: {'y' * 500_000}",
        f"{SIGNED}Transfer-Encoding: chunked\r\n\r\nzz\r\n" + "a" * 100_000,
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
def test_a_request_that_is_not_http_gets_400(address: str, content: str) -> None:
    assert send(address, content)[0] == 400


AMBIGUOUS = {
    "length and encoding": f"{SIGNED}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n",
    "encoding and length": f"{SIGNED}Transfer-Encoding: chunked\r\nContent-Length: 12\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n",
    "two lengths": f"{SIGNED}Content-Length: 2\r\nContent-Length: 2\r\n\r\n{{}}",
    "a list of lengths": f"{SIGNED}Content-Length: 2, 2\r\n\r\n{{}}",
    "two encodings": f"{SIGNED}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n",
    "chunked twice": f"{SIGNED}Transfer-Encoding: chunked, chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n",
    "an unknown encoding": f"{SIGNED}Transfer-Encoding: xchunked\r\nContent-Length: 2\r\n\r\n{{}}",
    "a space before the colon": f"{SIGNED}Content-Length : 2\r\n\r\n{{}}",
    "a folded header": f"{SIGNED}X-Note: one\r\n two\r\nContent-Length: 2\r\n\r\n{{}}",
    "a folded length": f"{SIGNED}Content-Length:\r\n\t2\r\n\r\n{{}}",
    "a fold before the first header": f"{SIGNED}Content-Length: 2\r\n\r\n{{}}".replace("\r\n", "\r\n ", 1),
    "line feeds": f"{SIGNED}Content-Length: 2\r\n\r\n".replace("\r\n", "\n") + "{}",
    "one line feed": f"{SIGNED}X-Note: one\nContent-Length: 2\r\n\r\n{{}}",
    "a line feed after the request line": f"{SIGNED}Content-Length: 2\r\n\r\n{{}}".replace("\r\n", "\n", 1),
    "a blank line of a line feed": f"{SIGNED}Content-Length: 2\r\n\n{{}}",
    "a line feed before the request": f"\n{SIGNED}Content-Length: 2\r\n\r\n{{}}",
    "a carriage return in a header": f"{SIGNED}X-Note: one\rtwo\r\nContent-Length: 2\r\n\r\n{{}}",
    "a chunk that ends with a line feed": f"{SIGNED}Transfer-Encoding: chunked\r\n\r\n2\n{{}}\r\n0\r\n\r\n",
    "chunks that end with a line feed": f"{SIGNED}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\n",
    "a trailer with a line feed": f"{SIGNED}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\nX: y\n\r\n",
    "a folded trailer": f"{SIGNED}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\nX: y\r\n z\r\n\r\n",
}


@pytest.mark.parametrize("content", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
@pytest.mark.parametrize("pieces", [False, True], ids=["at once", "byte by byte"])
def test_a_request_that_proxies_may_read_otherwise_gets_400_and_the_connection_ends(
    address: str, content: str, pieces: bool
) -> None:
    """What follows it must not be answered: a proxy may take it for a part of the first request's body."""
    after = f"{SIGNED}Content-Length: 2\r\n\r\n{{}}"
    with connect(address) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        whole = (content + after).encode("latin-1")
        for start in range(0, len(whole), 1 if pieces else len(whole)):
            client.sendall(whole[start : start + (1 if pieces else len(whole))])
        status, received = read_response(client)
    assert status == 400 and received.count("HTTP/1.1") == 1 and "connection: close" in received


def test_chunks_and_trailers_are_read(address: str) -> None:
    body = 'Transfer-Encoding: chunked\r\n\r\n4;name=value\r\n{"a"\r\n4\r\n: 1}\r\n0\r\nX-Checksum: 1\r\n\r\n'
    status, received = send(address, f"{SIGNED}Connection: close\r\n{body}")
    assert status == 200 and received.endswith('{"a":1}')


@pytest.mark.parametrize("close", ["Connection: close\r\n", ""])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_client_that_half_closes_gets_its_answers(address: str, close: str, version: str) -> None:
    request = f"{SIGNED}{close}Content-Length: 8\r\n\r\n".replace("HTTP/1.1", f"HTTP/{version}")
    count = 2 if not close and version == "1.1" else 1  # also a request that was sent with the first
    with connect(address) as client:
        client.sendall("".join(f'{request}{{"a": {number}}}' for number in range(count)).encode())
        client.shutdown(socket.SHUT_WR)
        status, received = read_response(client)
    assert status == 200 and received.count("200 OK") == count
    assert all(f'{{"a":{number}}}' in received for number in range(count))


def test_a_client_that_half_closes_is_told_that_the_server_still_computes(
    run_app: Callable[[Starlette], str], door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 Continue, which every client skips: if it has left instead, the network answers with a reset."""
    monkeypatch.setattr(connection, "PROBE_SECONDS", 0.02)
    address, go_on, left = _run_waiting(run_app, door)
    with connect(address) as client:
        client.sendall(f"{SIGNED}Content-Length: 2\r\n\r\n{{}}".encode())
        client.shutdown(socket.SHUT_WR)
        assert client.recv(4096).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        go_on.set()
        received = read_response(client)[1]
    assert received.count("HTTP/1.1 200 OK") == 1 and received.endswith("{}") and not left.is_set()


def test_a_client_that_leaves_is_noticed_while_the_server_computes(
    run_app: Callable[[Starlette], str], door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PROBE_SECONDS", 0.02)
    address, _, left = _run_waiting(run_app, door)
    with connect(address) as client:
        client.sendall(f"{SIGNED}Content-Length: 2\r\n\r\n{{}}".encode())
    assert left.wait(30)


def _run_waiting(run_app: Callable[[Starlette], str], door: str) -> tuple[str, threading.Event, threading.Event]:
    """A server with a verb that computes until the first event is set; the second is set when its client leaves."""
    go_on, left = threading.Event(), threading.Event()

    def compute(host: VerbJob, arguments: object) -> dict[str, object]:
        end = time.monotonic() + 30
        while not go_on.wait(0.01) and time.monotonic() < end:
            try:
                check_cancelled()
            except Cancelled:
                left.set()
                raise
        return {}

    return run_app(create_app(stub_registry(run_verb_stub(fill=compute), door=door), door=door)), go_on, left


def test_too_many_connections_get_429_with_retry_after(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 2)
    whole = f"{SIGNED}Connection: close\r\nContent-Length: 2\r\n\r\n{{}}"
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(connect(address)).sendall(b"POST")
        status, received = send(address, whole)
        assert status == 429 and f"retry-after: {connection.RETRY_AFTER}" in received
    _wait_until(lambda: send(address, whole)[0] == 200)  # and there is capacity again


def test_connections_of_one_address_leave_room_for_others(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that get 429 and do not close, which a client can open at any rate."""
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 8)
    monkeypatch.setattr(connection, "LINGER_SECONDS", 30.0)
    port = urlsplit(address).port or 0
    with ExitStack() as stack:
        for _ in range(6 + 20):  # six are held; 20 are refused, and the server waits until they close
            stack.enter_context(connect(address)).sendall(b"POST")
        assert send(address, f"{SIGNED}Connection: close\r\nContent-Length: 2\r\n\r\n{{}}")[0] == 429
        other = stack.enter_context(socket.create_connection(("127.0.0.1", port), 30, ("127.0.0.2", 0)))
        other.sendall(f"{SIGNED}Connection: close\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        assert read_response(other)[0] == 200


def test_request_bodies_share_a_memory_limit(run_app: Callable[[Starlette], str], door: str) -> None:
    run = run_verb_stub(fill=lambda host, arguments: dict(arguments))
    address = run_app(create_app(stub_registry(run, door=door), door=door, body_reader=BodyReader(max_in_flight=1000)))
    body = json.dumps({"a": "b" * 2000})
    assert send(address, f"{SIGNED}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}")[0] == 429
    body = json.dumps({"a": "b" * 500})
    for _ in range(5):  # the memory is released
        assert send(address, f"{SIGNED}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}")[0] == 200


def test_a_client_that_does_not_read_is_disconnected(
    run_app: Callable[[Starlette], str], door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "WRITE_SECONDS", 0.3)
    aborted, abort = threading.Event(), connection._LingeringTransport.abort
    monkeypatch.setattr(connection._LingeringTransport, "abort", lambda self: (abort(self), aborted.set()))
    run = run_verb_stub(fill=lambda host, arguments: {"a": "b" * 50_000_000})
    address = run_app(create_app(stub_registry(run, door=door), door=door))
    with connect(address) as client:
        client.sendall(f"{SIGNED}Content-Length: 2\r\n\r\n{{}}".encode())
        assert aborted.wait(60)
        received = 0
        with suppress(ConnectionError):
            while piece := client.recv(1 << 20):
                received += len(piece)
        assert received < 50_000_000  # what had been sent before


def _wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
