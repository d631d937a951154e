"""Runs a server until SIGTERM or Ctrl-C: binds the port, starts the models, and answers what is in flight.

`regard serve` listens when its models are loaded; the studio shows its page at once and loads them meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from regard.errors import InputError, RegardError
from regard.files.durable_folder import LOCK, lock_folder
from regard.render.bundle import check_built
from regard.server.app import create_app
from regard.server.http.access import ANY_ADDRESS, accepted_hosts, check_exposure, generate_token, read_api_keys
from regard.server.http.connection import Connection
from regard.server.http.endpoint import Limits
from regard.server.http.gateway import RequestLog
from regard.server.http.metrics import ServerMetrics
from regard.server.models.registry import ModelOptions, ModelRegistry
from regard.server.studio.routes import Studio
from regard.server.studio.workspace import FOLDER, Workspace

HOST = "127.0.0.1"
PREFIX = "regard-server-"  # of temporary folders
PORTS_TO_TRY = 20
CANCEL_SECONDS = 5.0  # that a computation may take to notice that its request has been given up
STUDIO_SECONDS = 2.0  # that requests to a studio may take when it ends
MAX_CLASS_CONNECTIONS = 1024  # a browser opens up to six
ENDPOINTS = (
    "POST /v1/embeddings /v1/completions /v1/chat/completions  GET /v1/models             as OpenAI's API",
    "POST /embed /embed_all /embed_sparse /rerank /predict /similarity /tokenize /decode  as Text Embeddings Inference",
    "POST /v1/rerank                                                                      as Jina's and Cohere's APIs",
    "POST /v1/VERB                                                                        every verb of Regard",
    "GET  /health /info /metrics /openapi.json",
)


def run_server(
    models: Sequence[str],
    *,
    host: str = HOST,
    port: int = 8000,
    api_key_file: str | None = None,
    limits: Limits | None = None,
    options: ModelOptions | None = None,
    log_requests: bool = True,
    on_message: Callable[[str], None] = print,
) -> None:
    """Serve models until SIGTERM or Ctrl-C. Port 0 takes any free port.

    Raises InputError or RegardError when the port is taken, a model cannot be loaded, or the server would be open to
    others without a key.
    """
    check_exposure(host, api_key_file, command="serve")
    keys = None if api_key_file is None else read_api_keys(api_key_file)
    limits = limits or Limits()
    with temporary_folder(), listen(port, host=host, command="serve", backlog=0) as bound:
        log = RequestLog()

        async def run() -> None:
            metrics = ServerMetrics()

            def on_event(event: Mapping[str, object]) -> None:
                log.write(event)
                if event["event"] == "model_ended":
                    metrics.on_restart(str(event["model"]))

            stuck = limits.request_timeout + CANCEL_SECONDS
            registry = ModelRegistry(models, options, stuck_seconds=stuck, on_batch=metrics.on_batch, on_event=on_event)
            app = create_app(
                registry,
                limits=limits,
                keys=keys,
                hosts=accepted_hosts(host),
                log=log if log_requests else None,
                metrics=metrics,
            )
            connections = 16 * limits.max_concurrent_requests
            server = create_server(app, max_connections=connections, graceful=limits.request_timeout)
            if await _serve(server, bound, registry, lambda: _announce(bound, host, registry, on_message), wait=True):
                on_message("The server has ended.")

        try:
            asyncio.run(run())
        finally:
            log.close()


def run_studio(
    models: Sequence[str],
    *,
    host: str = HOST,
    port: int = 8080,
    api_key_file: str | None = None,
    folder: str = FOLDER,
    data: Sequence[str] = (),
    threads: int = 0,
    on_message: Callable[[str], None] = print,
) -> None:
    """Serve the studio until SIGTERM or Ctrl-C, on this machine only unless `host` says otherwise. Port 0 takes any
    free port.

    A host that others can reach needs `api_key_file`, with keys that replace the token. `folder` is where the studio
    writes, `data` the other paths that the page may name, `threads` the number of threads of a request (0: by the size
    of its model). Only those who know the reported address, or a key, can use the studio.
    """
    check_built()
    check_exposure(host, api_key_file, command="studio")
    keys = None if api_key_file is None else read_api_keys(api_key_file)
    workspace = Workspace(folder, data)
    workspace.check()
    with temporary_folder(), listen(port, host=host, backlog=0) as bound:

        async def run() -> None:
            metrics, token = ServerMetrics(), generate_token()
            options = ModelOptions(threads=threads, device="cpu", local=True)
            studio = Studio(ModelRegistry(models, options, on_batch=metrics.on_batch), workspace)
            app = create_app(
                studio.models, studio=studio, token=token, keys=keys, hosts=accepted_hosts(host), metrics=metrics
            )
            connections = 0 if keys is None else MAX_CLASS_CONNECTIONS
            server = create_server(app, max_connections=connections, graceful=STUDIO_SECONDS)
            name = socket.gethostname() if host in ANY_ADDRESS else f"[{host}]" if ":" in host else host
            address = f"http://{name}:{bound.getsockname()[1]}/"
            address = f"{address}?token={token}" if keys is None else f"{address}, for those with a key,"
            where = workspace.folder.resolve()

            def announce() -> None:
                on_message(f"The studio is at {address}  (Ctrl-C ends it; it writes only to {where})")

            try:
                await _serve(server, bound, studio.models, announce, wait=False)
            finally:
                await asyncio.to_thread(studio.training_jobs.close)
            on_message("The studio has ended.")

        asyncio.run(run())


async def _serve(
    server: uvicorn.Server,
    bound: socket.socket,
    models: ModelRegistry,
    announce: Callable[[], None],
    *,
    wait: bool,
) -> bool:
    """Load the models and serve, one after the other with `wait`, else at the same time. Returns whether it served:
    False when a signal came before."""
    stopping = asyncio.Event()
    with _on_signals(asyncio.get_running_loop(), stopping):
        stop = asyncio.ensure_future(stopping.wait())
        loading: asyncio.Task[None] | None = None
        try:
            if wait:
                loading = asyncio.ensure_future(models.start())
                await asyncio.wait([loading, stop], return_when=asyncio.FIRST_COMPLETED)
                if not loading.done():
                    return False
                loading.result()
            bound.listen(1024)
            announce()
            if not wait:
                loading = asyncio.ensure_future(models.prepare())
            stop.add_done_callback(lambda done: setattr(server, "should_exit", True))
            await server.serve(sockets=[bound])
            return True
        finally:
            stop.cancel()
            if loading is not None:
                loading.cancel()
                await asyncio.gather(loading, return_exceptions=True)
            models.close()


def _announce(bound: socket.socket, host: str, models: ModelRegistry, on_message: Callable[[str], None]) -> None:
    port = bound.getsockname()[1]
    address_name = f"[{host}]" if ":" in host else host
    on_message(f"Serving at http://{address_name}:{port}  (Ctrl-C ends it)")
    for model in models.describe():
        on_message(f"  {model['model']}: {', '.join(model['operations']) or 'verbs only'}")
    for line in ENDPOINTS:
        on_message(f"  {line}")


@contextlib.contextmanager
def _on_signals(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C end the server instead of the process; only the main thread can set handlers.

    While requests are served uvicorn has its own handlers, and raises the signals again when it has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: loop.call_soon_threadsafe(stopping.set)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler or signal.SIG_DFL)


def create_server(app: Starlette, *, max_connections: int = 0, graceful: float = 2.0) -> uvicorn.Server:
    """A server with limits on connections (0: the default), which waits `graceful` seconds for answers when it ends. It
    logs no addresses, because one of them may hold a token."""
    settings = {"max_connections": max_connections, "shed": staticmethod(app.state.shed)}
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


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Let this process and those that it starts for models write temporary files to a folder of its own, removed at the
    end. A server that was killed leaves its folder; the next one removes it."""
    before = tempfile.tempdir
    _remove_abandoned(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with lock_folder(folder):
            tempfile.tempdir = str(folder)
            yield folder
    finally:
        tempfile.tempdir = before
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of this user's servers that no longer run. A server that runs holds the lock of its folder;
    one without a process in its lock is none, or is about to be locked."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, RegardError):  # in use, or removed meanwhile
            status = folder.lstat()
            ours = hasattr(os, "getuid") and status.st_uid == os.getuid() and not folder.is_symlink()
            if ours and (folder / LOCK).lstat().st_size:
                with lock_folder(folder):
                    shutil.rmtree(folder)
