"""`regard studio`: the page in the browser on which a model can be looked into."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from regard.known import builtins

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
) -> None:
    """Look inside models in the browser: type a sentence and see what a model does with it.

    The page is served to this machine alone and asks no other. Without --model it has the models that come with Regard.
    """
    from regard.studio.serve import serve

    if serve(list(dict.fromkeys(models or builtins())), port=port, say=lambda line: print(line, flush=True)):
        os._exit(0)  # an orderly end would wait for these threads, or take torch away from under them
