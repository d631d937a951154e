"""Runs the studio until Ctrl-C: takes the port, says where the page is, loads the models behind it.

Knows ports and signals. Knows nothing of views.
"""

from __future__ import annotations

import contextlib
import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from regard.errors import InputError, RegardError
from regard.render.bundle import check_built
from regard.server.model_registry import LOADER, ModelRegistry
from regard.server.workspace import FOLDER, Workspace

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

__all__ = ["HOST", "create_server", "listen", "serve"]

HOST = "127.0.0.1"
TRIES = 20
PATIENCE = 2  # seconds that requests under way get at the end


def serve(
    models: Sequence[str],
    *,
    port: int = 8080,
    folder: str = FOLDER,
    data: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> bool:
    """Serve the studio on this machine alone, until Ctrl-C. Port 0 takes any free one.

    `folder` is what the studio writes to, `data` what the page may name beside it. Whoever has the address that is
    said can use the studio, and nobody else. Returns whether threads are left that load or compute what nobody waits
    for any more.
    """
    check_built()
    from regard.server.app import create_app
    from regard.server.request_queue import WORKER, RequestQueue
    from regard.server.routes_tasks import end_training
    from regard.server.token_auth import generate_token

    workspace = Workspace(folder, data)
    workspace.check()
    registry, queue, token = ModelRegistry(models, workspace=workspace), RequestQueue(), generate_token()
    with listen(port) as taken:
        server = create_server(create_app(registry, token=token, queue=queue))
        try:
            with _interrupts(lambda: setattr(server, "should_exit", True)):
                address = f"http://{HOST}:{taken.getsockname()[1]}/?token={token}"
                say(f"The studio is at {address}  (Ctrl-C ends it; it writes only to {workspace.folder.resolve()})")
                registry.start()
                server.run(sockets=[taken])
        finally:  # also where SIGTERM came
            end_training(registry)
            queue.close()
        say("The studio has ended.")
    return any(thread.name in (LOADER, WORKER) for thread in threading.enumerate())


def create_server(app: Starlette) -> uvicorn.Server:
    """What serves the application, with the studio's limits on connections. It logs no addresses: one has the token."""
    import uvicorn

    from regard.server.connection import Connection

    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="asyncio",
        log_level="critical",
        access_log=False,
        timeout_graceful_shutdown=PATIENCE,
        lifespan="off",
    )
    return uvicorn.Server(config)


@contextlib.contextmanager
def _interrupts(end: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C call `end`: an exception could come while the server sets itself up, and leave half of it behind.

    Only the main thread may set a handler, and only that one is interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: end())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)


def listen(port: int) -> socket.socket:
    """A socket that waits for calls from this machine; a taken port gives an error that names a free one."""
    taken = _bound(port)
    if taken is None:
        free = next((other for other in range(port + 1, min(port + TRIES, 65536)) if _is_free(other)), 0)
        raise InputError(f"port {port} is taken; this one is free: regard studio --port {free}")
    taken.listen(128)
    return taken


def _bound(port: int) -> socket.socket | None:
    new = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        new.bind((HOST, port))
    except OSError as error:
        new.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise RegardError(f"port {port} cannot be used: {error.strerror}; try another with --port") from None
    return new


def _is_free(port: int) -> bool:
    found = _bound(port)
    if found is not None:
        found.close()
    return found is not None
