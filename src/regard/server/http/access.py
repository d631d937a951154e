"""Who is answered: requests for the server's own host names that carry a key; in a studio, its token or a key.

A program sends `Authorization: Bearer KEY`. A browser gets the token of a studio from the printed address,
`/?token=...`, and keeps it as a cookie; with a file of keys, one per line, a page asks for one. Keys are compared in
constant time. Tokens are never written to a file or a log.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import InputError
from regard.server.errors import RequestError
from regard.server.http.endpoint import error_response, shape_of

MIN_CHARACTERS = 16
ANY_ADDRESS = ("0.0.0.0", "::")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
OPEN = ("/health",)  # what load balancers ask; it tells the names and states of the models
TOKEN_BYTES = 32
TAB_HEADER = b"x-regard-tab"  # names the tab of a browser: tabs share the server as the clients of others do
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Against clickjacking: no other page may embed this one.
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "frame-ancestors 'none'",
}


@dataclass(frozen=True)
class Refusal:
    """What requests without a key get: a message, and for browsers a page. Without a page, a browser cannot sign in."""

    message: str
    page: str = ""


KEY_REFUSAL = Refusal("this server needs a key: send the header Authorization: Bearer KEY with one of its keys")
TOKEN_PAGE = Refusal(
    "this request has no valid token: open the address that `regard studio` printed in the terminal",
    """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Regard studio: token needed</title></head>
<body>
<h1>This studio needs its token</h1>
<p>The studio answers only the person who started it.
Open the address that <code>regard studio</code> printed in the terminal; it ends in <code>?token=…</code>.</p>
<p>The token changes each time the studio starts.</p>
</body>
</html>
""",
)
KEY_PAGE = Refusal(
    "this studio needs a key: send the header Authorization: Bearer KEY with one of its keys",
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Regard studio: sign in</title>
</head>
<body>
<h1>This studio needs a key</h1>
<p>Others can reach it over the network, so it answers only people who have one of its keys.
Whoever started it can give you one.</p>
<form action="/" method="get">
<label>Key: <input name="token" type="password" autocomplete="current-password" required autofocus></label>
<button>Sign in</button>
</form>
</body>
</html>
""",
)


def generate_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def cookie_name(port: int) -> str:
    """The cookie of the studio at a port; browsers send a cookie to all ports of a host."""
    return f"regard-{port}"


class ApiKeys:
    """Keys of which only hashes are kept."""

    def __init__(self, keys: Sequence[str]) -> None:
        if not all(keys):
            raise ValueError("a key is empty; expected one made by generate_token(), or those of a file")
        self._digests = [_digest(key) for key in keys]

    def __len__(self) -> int:
        return len(self._digests)

    def find(self, given: str) -> int | None:
        """The number of a key, from 0, or None. Takes the same time for every key and for none."""
        digest, found = _digest(given), None
        for number, known in enumerate(self._digests):
            if hmac.compare_digest(digest, known):
                found = number
        return found


def read_api_keys(path: str | os.PathLike[str]) -> ApiKeys:
    """The keys of a file, one per line; blank lines and lines that begin with # are skipped."""
    file = Path(os.path.expanduser(path))
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}; --api-key-file expects a file with one key per line") from None
    except UnicodeDecodeError:
        raise InputError(f"{file} is not text; --api-key-file expects a file with one key per line") from None
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys:
        raise InputError(f"{file} has no key; write one per line, for example with: openssl rand -hex 24 > {file}")
    for number, line in enumerate(lines, start=1):
        key = line.strip()
        if key and not key.startswith("#") and (len(key) < MIN_CHARACTERS or not key.isascii() or " " in key):
            raise InputError(
                f"{file}, line {number}: a key needs at least {MIN_CHARACTERS} ASCII characters without spaces; make "
                "one with: openssl rand -hex 24"
            )
    return ApiKeys(keys)


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach a server at this host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, key_file: str | None, *, command: str) -> None:
    """InputError for a server that others could reach, and use, without a key."""
    if key_file is None and not is_loopback(host):
        raise InputError(
            f"--host {host} lets anyone who can reach this machine's port use the models; give a file with keys: "
            f"regard {command} --host {host} --api-key-file FILE (one key per line)"
        )


def accepted_hosts(host: str) -> list[str]:
    """The Host headers that a server answers: other names for its address are refused (DNS rebinding). A server on all
    addresses cannot know its names; there the key protects it."""
    if host in ANY_ADDRESS:
        return ["*"]
    return list(dict.fromkeys([host, *LOOPBACK]))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class HostMiddleware:
    """Starlette's check of the header Host (against DNS rebinding), with an answer in the form of the path."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.app = app
        self._check = TrustedHostMiddleware(_accept, allowed_hosts=list(hosts), www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._check(scope, receive, _drop)
        if scope.pop("regard.accepted", False):
            return await self.app(scope, receive, send)
        given = _header(scope, b"host")
        message = f"this server does not answer for the host {given[:200]!r}; use the address that it printed"
        await error_response(RequestError(400, message), shape_of(scope["path"]))(scope, receive, send)


async def _accept(scope: Scope, receive: Receive, send: Send) -> None:
    scope["regard.accepted"] = True


async def _drop(message: Message) -> None:
    """Starlette's own answer, which is plain text."""


class KeyMiddleware:
    """Passes on requests with a key, as requests of the client who has it, and answers all others with 401.

    If the refusal has a page, browsers sign in with a cookie, their tabs are the clients, all answers get HEADERS, and
    no path is open.
    """

    def __init__(self, app: ASGIApp, keys: ApiKeys, refusal: Refusal = KEY_REFUSAL) -> None:
        self.app, self._keys, self._refusal = app, keys, refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        if self._refusal.page:
            return await self._answer_browser(scope, receive, send)
        number = None if scope["path"] in OPEN else self._bearer(scope)
        if number is not None:
            scope["regard.record"].client = f"key {number}"
        elif scope["path"] not in OPEN:
            return await self._refuse(scope)(scope, receive, send)
        await self.app(scope, receive, send)

    async def _answer_browser(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        known = self._bearer(scope) is not None
        known = known or self._keys.find(request.cookies.get(_request_cookie(request), "")) is not None
        response = self._sign_in(request, known) or (None if known else self._refuse(scope))
        if response is not None:
            return await response(scope, receive, send_with_headers)
        if tab := _header(scope, TAB_HEADER)[:64]:
            scope["regard.record"].client = f"tab {tab.replace(':', ' ')}"
        await self.app(scope, receive, send_with_headers)

    def _sign_in(self, request: Request, known: bool) -> Response | None:
        """Answer the printed address with a cookie and a redirect to the address without the token. The browser keeps
        the fragment."""
        given = parse_qs(request.url.query).get("token")
        if request.url.path != "/" or request.method not in ("GET", "HEAD") or given is None:
            return None
        response = RedirectResponse("/", 303)
        if self._keys.find(given[-1]) is not None:
            response.set_cookie(_request_cookie(request), given[-1], httponly=True, samesite="strict")
            return response
        return response if known else None  # an old address in a browser that is signed in: nothing to refuse

    def _bearer(self, scope: Scope) -> int | None:
        scheme, _, credentials = _header(scope, b"authorization").partition(" ")
        return self._keys.find(credentials.strip()) if scheme.lower() == "bearer" else None

    def _refuse(self, scope: Scope) -> Response:
        scope["regard.record"].error = "unauthorized"
        path = scope["path"]
        if self._refusal.page and not path.startswith(("/api/", "/v1/")):
            response: Response = HTMLResponse(self._refusal.page, 401)
        else:
            response = error_response(RequestError(401, self._refusal.message, code="invalid_api_key"), shape_of(path))
        response.headers["WWW-Authenticate"] = "Bearer"
        return response


def _header(scope: Scope, name: bytes) -> str:
    return next((value for key, value in scope["headers"] if key == name), b"").decode("latin-1")


def _request_cookie(request: Request) -> str:
    server = request.scope.get("server")
    return cookie_name(server[1] if server else 0)
