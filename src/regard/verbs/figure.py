"""`regard figure`: Figure 1 of the Transformer with the tensors of a sentence, and the effect of removing its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.known import DEFAULT_MODEL
from regard.verbs.base import PAGE, ModelName, Models, Request, argument, layer_option, option, verb

if TYPE_CHECKING:
    from regard.interpret.figure.figure import Figure


class FigureRequest(Request):
    text: str = argument(help="What the model reads.")
    model: ModelName | None = option(
        None,
        "-m",
        help=f"A model folder, a hub name or a built-in name; by default a built-in translator, or {DEFAULT_MODEL}.",
        metavar="MODEL",
    )
    target: str | None = option(
        None, help="The output that a translator decodes; by default its own translation.", metavar="TEXT"
    )
    without: list[str] = option(
        [], help="Remove parts of the model: mask, positions, scaling, residual.", metavar="A,B"
    )
    layer: int = layer_option("Layer to show", 1)
    ablation: bool = option(
        True, help="Measure the effect of removing each part; otherwise only of the parts that are removed."
    )


@verb(FigureRequest, result="regard.interpret.figure.figure:Figure", formats=(*PAGE, ".json"), notes=True)
def figure(request: FigureRequest, models: Models) -> Figure:
    """Draw Figure 1 of "Attention Is All You Need" for a model and a sentence: every box with its tensors and its code.

    Parts of the model can be removed; the effect is measured for each of them over this text and over a few built-in
    sentences. A page (.html) shows every layer, the attention maps and the positional encodings.

    Example: regard figure "The cat sat on the mat." --without positions --output page.html
    """
    from regard.interpret.figure.figure import figure_of
    from regard.interpret.figure.figure_model import default_figure_model

    with models.use(request.model or default_figure_model()) as loaded:
        result = figure_of(
            loaded,
            request.text,
            request.target,
            without=request.without,
            layer=request.layer,
            ablation=request.ablation,
        )
        notes = [] if loaded.translator is None else loaded.translator.source_notes(request.text)
    result = result.model_copy(update={"notes": [*result.notes, *notes]})
    return result
