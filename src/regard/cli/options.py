"""Options that mean the same in every verb, as types for a verb's parameters.

Knows names, help texts and defaults, not what a verb does with them:

    def embed(model: ModelOption = DEFAULT, device: DeviceOption = "auto", seed: SeedOption = 0) -> None: ...
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import typer

__all__ = ["Device", "DeviceOption", "JsonOption", "ModelOption", "SeedOption"]


Device: TypeAlias = Literal["auto", "cpu", "cuda"]

ModelOption: TypeAlias = Annotated[
    str,
    typer.Option("--model", "-m", metavar="MODEL", help="A model folder, a hub name or a built-in name."),
]
DeviceOption: TypeAlias = Annotated[
    Device,
    typer.Option("--device", help="Where to compute; auto takes a GPU where there is one."),
]
SeedOption: TypeAlias = Annotated[
    int,
    typer.Option("--seed", metavar="N", min=0, max=2**63 - 1, help="The same seed gives the same result."),
]
JsonOption: TypeAlias = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document instead of text."),
]
