"""Answers requests to a full server from their bytes, before they are parsed: refusing must not take the time of the
requests that were accepted.

Only the plain form of a request that clients send is recognized; all others take the ordinary path, which refuses them
with the same answer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from starlette.routing import Route

from regard.server.errors import busy
from regard.server.http.endpoint import AdmissionControl, Endpoint, RequestRecord, error_response, shape_of
from regard.server.http.gateway import REQUEST_ID, Reporter, request_id

REQUEST = re.compile(rb"POST (/[\w/-]*) HTTP/1\.1\r\n((?:[!-9;-~]+:[^\r\n\0]*\r\n)+)\r\n")
LENGTH = re.compile(rb"^content-length:[ \t]*([^\r]*)\r$", re.MULTILINE | re.IGNORECASE)
GIVEN_ID = re.compile(rb"^%b:[ \t]*([^ \t\r]*)[ \t]*\r$" % REQUEST_ID, re.MULTILINE | re.IGNORECASE)
# Headers that decide where a request ends or what becomes of its connection.
OTHER = re.compile(rb"^(?:transfer-encoding|connection|expect|upgrade)[ \t]*:", re.MULTILINE | re.IGNORECASE)


class Shedder:
    """Call it with the bytes of a request and its client: the answer, or None if the request takes the ordinary path.

    It answers for the endpoints among `routes` while `admission` has no slot, or none for the client's address.
    """

    def __init__(self, admission: AdmissionControl, routes: Iterable[Route], reporter: Reporter) -> None:
        self._slots, self._reporter = admission.slots, reporter
        # For a path and a reason, what comes before and after the id of the request.
        self._answers: dict[tuple[bytes, str], tuple[bytes, bytes]] = {}
        for route in routes:
            if isinstance(route.endpoint, Endpoint) and route.endpoint.admission is admission and "{" not in route.path:
                for message in admission.slots.messages:
                    response = error_response(busy(message), shape_of(route.path))
                    headers = b"".join(b"%b: %b\r\n" % header for header in response.raw_headers)
                    start = b"HTTP/1.1 429 Too Many Requests\r\n%b%b: " % (headers, REQUEST_ID)
                    self._answers[route.path.encode(), message] = start, b"\r\n\r\n" + bytes(response.body)

    def __call__(self, data: bytes, client: str) -> bytes | None:
        if not (refusal := self._slots.refusal(client)):
            return None
        request = REQUEST.match(data)
        if request is None or (answer := self._answers.get((request[1], refusal))) is None or OTHER.search(request[2]):
            return None
        lengths = [length.strip() for length in LENGTH.findall(request[2])]
        if len(lengths) != 1 or not re.fullmatch(rb"[0-9]{1,12}", lengths[0]):
            return None
        if len(data) != request.end() + int(lengths[0]):
            return None
        given = GIVEN_ID.search(request[2])
        number, path = request_id(given[1] if given else b""), request[1].decode()
        self._reporter.begin(path)
        record = RequestRecord(number.decode(), client, time.perf_counter(), error="overloaded")
        self._reporter.end(record, "POST", path, 429)
        return number.join(answer)
