"""Sockets that listen, and the ASGI server over them."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from regard.errors import InputError, RegardError

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

HOST = "127.0.0.1"
PORTS_TO_TRY = 20


def create_server(
    app: Starlette,
    *,
    max_connections: int = 0,
    graceful: float = 2.0,
    shed: Callable[[bytes, str], bytes | None] | None = None,
) -> uvicorn.Server:
    """A server with limits on connections (0: the default), which waits `graceful` seconds for answers when it ends.
    `shed` may answer requests before they are parsed. It logs no addresses, because one of them may hold a token."""
    import uvicorn

    from regard.server.http.connection import Connection

    settings = {"max_connections": max_connections} | ({} if shed is None else {"shed": staticmethod(shed)})
    connection = type("Connection", (Connection,), settings)
    config = uvicorn.Config(
        app,
        http=connection,
        ws="none",
        loop="asyncio",
        log_level="critical",
        access_log=False,
        timeout_graceful_shutdown=round(graceful),
        lifespan="off",
    )
    return uvicorn.Server(config)


def listen(port: int, *, host: str = HOST, command: str = "studio", backlog: int = 128) -> socket.socket:
    """A socket that listens at a host; with `backlog` 0, one that is bound and does not listen yet. The error for a
    port that is in use names a free one."""
    bound = _bind(host, port)
    if bound is None:
        free = next((other for other in range(port + 1, min(port + PORTS_TO_TRY, 65536)) if _is_free(host, other)), 0)
        raise InputError(f"port {port} is taken; this one is free: regard {command} --port {free}")
    if backlog:
        bound.listen(backlog)
    return bound


def _bind(host: str, port: int) -> socket.socket | None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise InputError(f"--host {host} is no address of this machine; 127.0.0.1 is this machine only") from None
    new = socket.socket(family, kind, protocol)
    new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        new.bind(address)
    except OSError as error:
        new.close()
        if error.errno == errno.EADDRINUSE:
            return None
        if error.errno == errno.EADDRNOTAVAIL:
            raise InputError(f"--host {host} is no address of this machine; 127.0.0.1 is this machine only") from None
        raise RegardError(f"port {port} cannot be used: {error.strerror}; try another with --port") from None
    return new


def _is_free(host: str, port: int) -> bool:
    bound = _bind(host, port)
    if bound is not None:
        bound.close()
    return bound is not None
