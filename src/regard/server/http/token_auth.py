"""Authentication: the studio answers only requests that carry its token, or one of its keys if it has a file of them.

A browser gets the token from the printed address, `/?token=...`, and keeps it as a cookie; a script sends
`Authorization: Bearer TOKEN`. The token is never written to a file or a log. With keys, the page asks for one.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from regard.server.errors import RequestError
from regard.server.http.endpoint import error_response, shape_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from regard.server.http.api_keys import ApiKeys

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
REFUSAL = "this request has no valid token: open the address that `regard studio` printed in the terminal"
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Regard studio: token needed</title></head>
<body>
<h1>This studio needs its token</h1>
<p>The studio answers only the person who started it.
Open the address that <code>regard studio</code> printed in the terminal; it ends in <code>?token=…</code>.</p>
<p>The token changes each time the studio starts.</p>
</body>
</html>
"""
KEY_REFUSAL = "this studio needs a key: send the header Authorization: Bearer KEY with one of its keys"
KEY_PAGE = """<!doctype html>
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
"""


def generate_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def cookie_name(port: int) -> str:
    """The cookie of the studio at a port; browsers send a cookie to all ports of a host."""
    return f"regard-{port}"


class TokenMiddleware:
    """Middleware that passes on requests with the token, or with one of the `keys` if there are any, and answers all
    others with 401. All answers get HEADERS."""

    def __init__(self, app: ASGIApp, token: str, keys: ApiKeys | None = None) -> None:
        if not token:
            raise ValueError("the token is empty; expected one made by generate_token()")
        self.app, self._token, self._keys = app, token.encode(), keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        request = Request(scope)
        response = self._sign_in(request)
        if response is None and not self._has_token(request):
            response = _refuse(request, keys=self._keys is not None)
        if response is not None:
            return await response(scope, receive, send)

        tab = next((value for name, value in scope["headers"] if name == TAB_HEADER), b"").decode("latin-1")[:64]
        if tab:
            scope["regard.record"].client = f"tab {tab.replace(':', ' ')}"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)

    def _sign_in(self, request: Request) -> Response | None:
        """Answer the printed address with a cookie and a redirect to the address without the token. The browser keeps
        the fragment."""
        if request.url.path != "/" or request.method not in ("GET", "HEAD"):
            return None
        given = parse_qs(request.url.query).get("token")
        if given is None:
            return None
        if not self._is_token(given[-1]):
            # An old address in a browser that has a valid cookie: there is nothing to refuse.
            return RedirectResponse("/", 303, HEADERS) if self._has_token(request) else None
        response = RedirectResponse("/", 303, HEADERS)
        response.set_cookie(_request_cookie(request), given[-1], httponly=True, samesite="strict")
        return response

    def _has_token(self, request: Request) -> bool:
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(credentials.strip()):
            return True
        return self._is_token(request.cookies.get(_request_cookie(request), ""))

    def _is_token(self, given: str) -> bool:
        if self._keys is not None:
            return self._keys.find(given) is not None
        return secrets.compare_digest(given.encode("utf-8", "replace"), self._token)


def _request_cookie(request: Request) -> str:
    server = request.scope.get("server")
    return cookie_name(server[1] if server else 0)


def _refuse(request: Request, *, keys: bool) -> Response:
    headers = {**HEADERS, "WWW-Authenticate": "Bearer"}
    if request.url.path.startswith(("/api/", "/v1/")):
        error = RequestError(401, KEY_REFUSAL if keys else REFUSAL, code="invalid_api_key")
        response = error_response(error, shape_of(request.url.path))
        response.headers.update(headers)
        return response
    return HTMLResponse(KEY_PAGE if keys else PAGE, 401, headers)
