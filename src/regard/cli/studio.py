"""`regard studio`: the page in the browser on which a model can be looked into."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from regard.known import builtin_names

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("studio")(studio)


def studio(
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model", "-m", metavar="MODEL", help="A model folder, a hub name or a built-in name; may be repeated."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", "-p", metavar="N", min=0, max=65535, help="Where to listen; 0 takes a free port.")
    ] = 8080,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="The only folder that the studio writes to: models trained on the page, and the files sent for them.",
        ),
    ] = "trained",
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="PATH",
            help="A file or folder of examples or images that the page may name, beside those in --output; may be "
            "repeated.",
        ),
    ] = None,
) -> None:
    """Look inside models in the browser: type a sentence and see what a model does with it.

    The page is served to this machine alone and asks no other. Its address has a token, new at each start; without it
    nobody can use the studio, no other account of this machine either. Without --model it has the models that come with
    Regard.
    """
    from regard.server.serve import serve

    names = list(dict.fromkeys(models or builtin_names()))
    if serve(names, port=port, folder=output, data=data or [], on_message=lambda line: print(line, flush=True)):
        os._exit(0)  # an orderly end would wait for these threads, or take torch away from under them
