"""`regard studio`: the local page for looking inside models."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from regard.checkpoints.packages import packaged_names
from regard.cli.serve import Host, Port
from regard.known import builtin_names


def register(app: typer.Typer) -> None:
    app.command("studio")(studio)


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
        str | None,
        typer.Option(
            "--api-key-file", metavar="FILE", help="Keys, one per line; the page asks for one instead of a token."
        ),
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
