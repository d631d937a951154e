"""`regard serve`: models behind HTTP, for programs; `regard studio`: the local page for looking inside models."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from regard.checkpoints.packages import packaged_names
from regard.known import DEFAULT_CAUSAL_LM, DEFAULT_EMBEDDING_MODEL, builtin_names

# Options of both.
Host = Annotated[
    str, typer.Option("--host", metavar="HOST", help="Address to listen on; 0.0.0.0 needs --api-key-file.")
]
Port = Annotated[
    int, typer.Option("--port", "-p", metavar="N", min=0, max=65535, help="Port to listen on; 0 takes a free one.")
]
limit = partial(typer.Option, rich_help_panel="Limits")
computing = partial(typer.Option, rich_help_panel="Computing")


def register(app: typer.Typer) -> None:
    app.command("studio")(studio)
    app.command("serve")(serve)


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL|DIR]...",
            help="Model folders, hub names or built-in names; NAME=DIR chooses the name for clients. Default: a "
            "built-in encoder and generator.",
        ),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    api_key_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Keys, one per line; clients send one as Bearer token.")
    ] = None,
    max_concurrent_requests: Annotated[
        int, limit(metavar="N", min=1, help="Requests held at once; others get 429 with Retry-After.")
    ] = 64,
    max_client_requests: Annotated[
        int,
        limit(
            metavar="N",
            min=0,
            help="Requests held at once of one client, a key or else an address; 0: three quarters of all.",
        ),
    ] = 0,
    max_body_bytes: Annotated[
        int, limit(metavar="N", min=1000, help="Largest body; larger ones are refused.")
    ] = 4_000_000,
    max_client_batch_size: Annotated[
        int, limit(metavar="N", min=1, help="Texts per request; more are refused.")
    ] = 2048,
    request_timeout: Annotated[
        float, limit(metavar="SECONDS", min=0.01, help="For an answer; slower ones become 504.")
    ] = 60.0,
    verb_timeout: Annotated[
        float,
        limit(
            metavar="SECONDS",
            min=0,
            help="For the computation of a verb; slower ones become 504. 0: half of --request-timeout.",
        ),
    ] = 0.0,
    body_timeout: Annotated[float, limit(metavar="SECONDS", min=0.1, help="For a body; slower ones get 408.")] = 5.0,
    auto_truncate: Annotated[
        bool,
        limit(help="Cut texts that are too long for a model unless a request says otherwise; else they are refused."),
    ] = False,
    accept_token_ids: Annotated[
        bool,
        limit(
            help="Accept token ids in place of texts, at /v1/embeddings, /v1/completions and /embed. They must be "
            "those of the model's own tokenizer; ids of another give wrong answers without an error."
        ),
    ] = False,
    threads: Annotated[int, computing(metavar="N", min=0, help="Threads per model; 0: as many as cores.")] = 0,
    device: Annotated[str, computing(metavar="DEVICE", help="auto, cpu, cuda, mps or xpu.")] = "auto",
    precision: Annotated[
        str | None,
        computing(
            metavar="PRECISION", help="fp32, bf16, int8 or auto. Default: fp32 on a CPU, bf16 on a GPU that has it."
        ),
    ] = None,
    max_batch_tokens: Annotated[
        int,
        computing(
            metavar="N", min=0, help="Tokens of all requests that are computed together; 0: what suits the device."
        ),
    ] = 0,
    log_requests: Annotated[
        bool, typer.Option(help="Write a line of JSON about each request to stderr, without texts and keys.")
    ] = True,
) -> None:
    """Serve models over HTTP to programs: OpenAI's API, Text Embeddings Inference's, and every verb at /v1/VERB.

    Each model runs in a process of its own; requests of many clients are computed together. Verbs have a second process
    of their model, which the first one starts. SIGTERM or Ctrl-C stops accepting requests, answers those in flight, and
    exits with 0. The server listens on this machine only, unless --host says otherwise; then every request needs a key,
    because anyone who can reach the port could use the models.

    regard serve ./my-model regard-gpt --port 8000
    """
    from regard.engine.memory import use_one_arena
    from regard.server.http.endpoint import Limits
    from regard.server.models.registry import ModelOptions
    from regard.server.run import run_server

    use_one_arena()
    default = [name for name in (DEFAULT_EMBEDDING_MODEL, DEFAULT_CAUSAL_LM) if name in builtin_names()]
    run_server(
        list(dict.fromkeys(models or default)),
        host=host,
        port=port,
        api_key_file=api_key_file,
        limits=Limits(
            max_concurrent_requests=max_concurrent_requests,
            max_client_requests=max_client_requests or max(1, max_concurrent_requests * 3 // 4),
            max_body_bytes=max_body_bytes,
            max_client_batch_size=max_client_batch_size,
            request_timeout=request_timeout,
            verb_timeout=verb_timeout or request_timeout / 2,
            body_timeout=body_timeout,
            auto_truncate=auto_truncate,
            accept_token_ids=accept_token_ids,
        ),
        options=ModelOptions(threads=threads, device=device, precision=precision, max_batch_tokens=max_batch_tokens),
        log_requests=log_requests,
        on_message=partial(print, flush=True),
    )


def studio(
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model", "-m", metavar="MODEL", help="A model folder, a hub name or a built-in name; may be repeated."
        ),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    api_key_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Keys, one per line; the page asks for one instead of a token.")
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="The only folder the studio writes to: models trained on the page, and uploaded files.",
        ),
    ] = "trained",
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="PATH",
            help="A file or folder of examples or images that the page may read, besides --output; may be repeated.",
        ),
    ] = None,
    threads: Annotated[
        int,
        typer.Option(
            "--threads",
            metavar="N",
            min=0,
            help="Threads per request; 0: one for models of up to 150 million parameters, all for larger ones.",
        ),
    ] = 0,
) -> None:
    """Look inside models in the browser: type a sentence and see what a model does with it.

    The page is served to this machine only and needs no network. Its address contains a token, new at each start;
    without it nobody can use the studio, not even other accounts of this machine. Without --model it has the built-in
    models and those of installed packages (`regard models`).

    A class can open it with --host 0.0.0.0 and a file of keys: anyone who can reach the port could otherwise use the
    models and read what --data names.
    """
    from regard.engine.memory import use_one_arena
    from regard.server.run import run_studio

    use_one_arena()
    run_studio(
        list(dict.fromkeys(models or [*builtin_names(), *packaged_names()])),
        host=host,
        port=port,
        api_key_file=api_key_file,
        folder=output,
        data=data or [],
        threads=threads,
        on_message=partial(print, flush=True),
    )
