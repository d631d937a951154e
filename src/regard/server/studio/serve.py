"""Runs the studio until Ctrl-C: binds the port, reports the address of the page, loads the models in the background."""

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
from regard.server.studio.model_registry import LOADER_NAME, ModelRegistry
from regard.server.studio.studio import FOLDER, Workspace

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

HOST = "127.0.0.1"
ANY_ADDRESS = ("0.0.0.0", "::")
PORTS_TO_TRY = 20
MAX_CLASS_CONNECTIONS = 1024  # a browser opens up to six
GRACEFUL_SHUTDOWN_SECONDS = 2


def serve(
    models: Sequence[str],
    *,
    host: str = HOST,
    port: int = 8080,
    api_key_file: str | None = None,
    folder: str = FOLDER,
    data: Sequence[str] = (),
    threads: int = 0,
    on_message: Callable[[str], None] = print,
) -> bool:
    """Serve the studio until Ctrl-C, on this machine only unless `host` says otherwise. Port 0 takes any free port.

    A host that others can reach needs `api_key_file`, with keys that replace the token. `folder` is where the studio
    writes, `data` the other paths that the page may name, `threads` the number of threads of a request (0: by the size
    of its model). Only those who know the reported address, or a key, can use the studio. Returns whether threads still
    load models or compute answers that are no longer wanted.
    """
    check_built()
    from regard.server.http.api_keys import accepted_hosts, check_exposure, read_api_keys
    from regard.server.http.token_auth import generate_token
    from regard.server.studio.app import create_app
    from regard.server.studio.request_queue import WORKER_NAME, RequestQueue
    from regard.server.studio.studio import Studio
    from regard.server.temporary_folder import temporary_folder

    check_exposure(host, api_key_file, command="studio")
    keys = None if api_key_file is None else read_api_keys(api_key_file)
    workspace = Workspace(folder, data)
    workspace.check()
    studio, queue, token = Studio(ModelRegistry(models, threads=threads), workspace), RequestQueue(), generate_token()
    with temporary_folder(), listen(port, host=host) as bound:
        app = create_app(studio, token=token, keys=keys, hosts=accepted_hosts(host), queue=queue)
        server = create_server(app, max_connections=0 if keys is None else MAX_CLASS_CONNECTIONS)
        try:
            with _on_interrupt(lambda: setattr(server, "should_exit", True)):
                address_name = socket.gethostname() if host in ANY_ADDRESS else f"[{host}]" if ":" in host else host
                address = f"http://{address_name}:{bound.getsockname()[1]}/"
                address = f"{address}?token={token}" if keys is None else f"{address}, for those with a key,"
                where = workspace.folder.resolve()
                on_message(f"The studio is at {address}  (Ctrl-C ends it; it writes only to {where})")
                studio.models.start()
                server.run(sockets=[bound])
        finally:  # also after SIGTERM
            studio.training_jobs.close()
            queue.close()
        on_message("The studio has ended.")
    return any(thread.name in (LOADER_NAME, WORKER_NAME) for thread in threading.enumerate())


def create_server(
    app: Starlette,
    *,
    max_connections: int = 0,
    graceful: float = GRACEFUL_SHUTDOWN_SECONDS,
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


@contextlib.contextmanager
def _on_interrupt(end: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C call `end`: an exception could arrive while the server starts, and leave it half started.

    Only the main thread may set a signal handler, and only that one is interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: end())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)


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
