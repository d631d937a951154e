"""`regard models`: which families there are and which checkpoints people know. Needs no torch."""

from __future__ import annotations

import typer

from regard.cli.options import JsonOption
from regard.cli.output import print_json

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("models")(models)


def models(as_json: JsonOption = False) -> None:
    """List the model families and known checkpoints, with their sizes.

    Any Hugging Face checkpoint of these families works, by its hub name or as a folder.
    """
    from regard.known import builtin_names
    from regard.models.family import families, known_checkpoints

    checkpoints = known_checkpoints()
    built_in = builtin_names()
    if as_json:
        print_json(
            {
                "families": [{"name": one.name, "note": one.description} for one in families().values()],
                "built_in": built_in,
                "checkpoints": [{"name": c.name, "family": c.family, "parameters": c.parameters} for c in checkpoints],
            }
        )
        return
    print("Families")
    for one in families().values():
        print(f"  {one.name:<12} {one.description}")
    print("\nBuilt in\n  " + ("\n  ".join(built_in) or "none in this version"))
    print("\nKnown checkpoints of the Hugging Face hub (parameters in millions, size as float32)")
    width = max(len(c.name) for c in checkpoints)
    for c in checkpoints:
        print(f"  {c.name:<{width}}  {c.family:<10} {c.parameters / 1e6:8.1f} M {c.parameters * 4 / 1e9:7.2f} GB")
    print("\nUse one: regard embed FILE --model NAME --output vectors.npy")
