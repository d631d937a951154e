"""`regard ablate`: removes heads or layers, and shows how the predictions of a model change."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Literal

from regard.events import Note
from regard.verbs.base import PAGE, ModelName, Models, Request, argument, model_option, option, verb

if TYPE_CHECKING:
    from regard.interpret.ablation import AblationResult

MAX_SWEEP_TARGETS = 8  # masked tokens in a sweep over all heads: each is a text of its own to read


class AblateRequest(Request):
    text: str = argument(help="The text; for a BERT with a blank, _ or [MASK], or any text with --at.")
    text_b: str | None = argument(
        None, help="A second text, for a fine-tuned model that reads two: of a pair, or the context of a question."
    )
    heads: str | None = option(None, help="Heads to remove: 3.1 (head 1 of layer 3), 4.*, *.0.", metavar="L.H,...")
    layers: str | None = option(None, help="Layers to remove, counted from 1; -1 is the last.", metavar="L,...")
    at: Literal["auto", "blanks", "masked", "plain"] = option(
        "blanks",
        help="Predict at the blanks (or the end); at every token, masked in turn; at every token, plain; or at every "
        "token in the best way that the model and the length of the text allow (auto).",
    )
    model: ModelName = model_option()
    top: int = option(10, help="Number of outputs or heads to list.", metavar="N", ge=1)
    sweep: bool = option(True, help="Also remove each head alone, and rank the heads.")


@verb(AblateRequest, result="regard.interpret.ablation:AblationResult", formats=(*PAGE, ".csv", ".json"))
def ablate(request: AblateRequest, models: Models) -> Generator[Note, None, AblationResult]:
    """Remove heads or layers from a model, and see how its predictions change.

    A BERT predicts the words of the blanks, a GPT the next token, a model with a task head its labels; with --at also
    every token of the text: a BERT with each one masked in turn or in place (plain), a GPT what follows each one
    (plain). Without --heads and --layers, every head is removed alone, and all are ranked by how much that changes:
    the Kullback-Leibler divergence of the new prediction from the old one, in nats, over the full vocabulary or all
    labels.

    Example: regard ablate "In winter the fields are _ with snow." --heads 3.1,2.*
    """
    from regard.interpret.ablation import ablate, parse_heads, parse_layers, sweep_heads
    from regard.interpret.attribution.probe import probe_model, subsample_targets

    with models.use(request.model) as loaded:
        probe = probe_model(loaded, request.text, request.text_b, at=request.at)
        sizes = {"num_layers": probe.num_layers, "num_heads": probe.num_heads}
        heads = parse_heads(request.heads, **sizes) if request.heads is not None else ()
        layers = parse_layers(request.layers, num_layers=probe.num_layers) if request.layers is not None else ()
        few = subsample_targets(probe, MAX_SWEEP_TARGETS)
        sweep = None
        if request.sweep:
            # The page asks again for every head that is removed; the sweep stays the same.
            sweep = loaded.cached(("head sweep", probe.texts, probe.at), lambda: sweep_heads(few))
        result = ablate(probe, heads=heads, layers=layers, top=request.top, sweep=sweep)
    if sweep is not None and len(few.targets) < len(probe.targets):
        count = f"{len(few.targets)} of the {len(probe.targets)} tokens"
        yield Note(message=f"every head was removed alone at {count}, evenly spaced")
    return result
