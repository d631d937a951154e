"""Runs `regard serve` until SIGTERM or Ctrl-C: binds the port, loads the models, and answers what is in flight."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from regard.server.http.api_keys import accepted_hosts, check_exposure, read_api_keys
from regard.server.http.endpoint import Limits
from regard.server.http.request_log import RequestLog
from regard.server.models.served_models import ModelOptions, ServedModels
from regard.server.studio.serve import create_server, listen
from regard.server.temporary_folder import temporary_folder

if TYPE_CHECKING:
    import socket

CANCEL_SECONDS = 5.0  # that a computation may take to notice that its request has been given up
ENDPOINTS = (
    "POST /v1/embeddings /v1/completions  GET /v1/models           as OpenAI's API",
    "POST /embed /rerank /predict /similarity /tokenize /decode    as Text Embeddings Inference",
    "POST /v1/VERB                                                  every verb of Regard",
    "GET  /health /info /metrics /openapi.json",
)


def run_server(
    models: Sequence[str],
    *,
    host: str = "127.0.0.1",
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
        try:
            asyncio.run(
                _serve(
                    bound,
                    models,
                    host,
                    keys,
                    limits,
                    options or ModelOptions(),
                    log,
                    log_requests,
                    on_message,
                )
            )
        finally:
            log.close()


async def _serve(
    bound: socket.socket,
    names: Sequence[str],
    host: str,
    keys: object,
    limits: Limits,
    options: ModelOptions,
    log: RequestLog,
    log_requests: bool,
    on_message: Callable[[str], None],
) -> None:
    from regard.server.http.metrics import ServerMetrics
    from regard.server.serving_app import create_serving_app

    metrics = ServerMetrics()

    def on_event(event: Mapping[str, object]) -> None:
        log.write(event)
        if event["event"] == "model_ended":
            metrics.on_restart(str(event["model"]))

    stuck = limits.request_timeout + CANCEL_SECONDS
    models = ServedModels(names, options, stuck_seconds=stuck, on_batch=metrics.on_batch, on_event=on_event)
    app = create_serving_app(
        models,
        limits=limits,
        keys=keys,  # type: ignore[arg-type]
        hosts=accepted_hosts(host),
        log=log if log_requests else None,
        metrics=metrics,
    )
    connections = 16 * limits.max_concurrent_requests
    server = create_server(app, max_connections=connections, graceful=limits.request_timeout, shed=app.state.shed)
    stopping = asyncio.Event()
    with _on_signals(asyncio.get_running_loop(), stopping):
        try:
            loading = asyncio.ensure_future(models.start())
            stop = asyncio.ensure_future(stopping.wait())
            await asyncio.wait([loading, stop], return_when=asyncio.FIRST_COMPLETED)
            if not loading.done():
                loading.cancel()
                await asyncio.gather(loading, return_exceptions=True)
                return
            stop.cancel()
            loading.result()
            bound.listen(1024)
            _announce(bound, host, models, on_message)
            await server.serve(sockets=[bound])
            on_message("The server has ended.")
        finally:
            models.close()


def _announce(bound: socket.socket, host: str, models: ServedModels, on_message: Callable[[str], None]) -> None:
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
