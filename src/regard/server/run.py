"""Runs a server until SIGTERM or Ctrl-C: binds the port, starts the models, and answers what is in flight.

`regard serve` listens when its models are loaded; the studio shows its page at once and loads them meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from regard.render.bundle import check_built
from regard.server.http.api_keys import accepted_hosts, check_exposure, read_api_keys
from regard.server.http.endpoint import Limits
from regard.server.http.listen import HOST, create_server, listen
from regard.server.http.request_log import RequestLog
from regard.server.models.registry import ModelOptions, ModelRegistry
from regard.server.studio.workspace import FOLDER, Workspace
from regard.server.temporary_folder import temporary_folder

if TYPE_CHECKING:
    import uvicorn


ANY_ADDRESS = ("0.0.0.0", "::")
CANCEL_SECONDS = 5.0  # that a computation may take to notice that its request has been given up
STUDIO_SECONDS = 2.0  # that requests to a studio may take when it ends
MAX_CLASS_CONNECTIONS = 1024  # a browser opens up to six
ENDPOINTS = (
    "POST /v1/embeddings /v1/completions  GET /v1/models           as OpenAI's API",
    "POST /embed /rerank /predict /similarity /tokenize /decode    as Text Embeddings Inference",
    "POST /v1/VERB                                                  every verb of Regard",
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
            from regard.server.app import create_app
            from regard.server.http.metrics import ServerMetrics

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
            graceful = limits.request_timeout
            server = create_server(app, max_connections=connections, graceful=graceful, shed=app.state.shed)
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
            from regard.server.app import create_app
            from regard.server.http.access import generate_token
            from regard.server.http.metrics import ServerMetrics
            from regard.server.studio.studio import Studio

            metrics, token = ServerMetrics(), generate_token()
            options = ModelOptions(threads=threads, device="cpu", local=True)
            studio = Studio(ModelRegistry(models, options, on_batch=metrics.on_batch), workspace)
            app = create_app(
                studio.models, studio=studio, token=token, keys=keys, hosts=accepted_hosts(host), metrics=metrics
            )
            connections = 0 if keys is None else MAX_CLASS_CONNECTIONS
            server = create_server(app, max_connections=connections, graceful=STUDIO_SECONDS, shed=app.state.shed)
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
