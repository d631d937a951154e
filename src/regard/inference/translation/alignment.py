"""Where a model looks in the source for each word of a translation: soft, as shares, and hard, as Pharaoh's `i-j`.

Knows a model's cross-attention, pieces and words. A word is what stands between spaces. The decoder is told the
translation, whoever made it, so any can be aligned; the row of a piece is where the model looked to say it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from regard.errors import InputError
from regard.inference.translation.model import TranslationModel, teacher_forced_logits
from regard.inference.translation.subwords import Subwords, word_indices
from regard.models import Transformer
from regard.models.family import can
from regard.nn import Padded
from regard.nn.evaluation import evaluation_mode
from regard.nn.recording import record

__all__ = ["Alignment", "AlignmentHeads", "align", "check_has_attention", "default_alignment_heads"]


@dataclass(frozen=True)
class AlignmentHeads:
    """The attention an alignment is made of: a layer of the decoder, from 0, and the mean of some of its heads."""

    layer: int
    heads: tuple[int, ...]

    def document(self) -> dict[str, object]:
        return {"layer": self.layer, "heads": list(self.heads)}

    def __str__(self) -> str:
        several = f"the mean of heads {', '.join(map(str, self.heads))}" if len(self.heads) > 1 else "the one head"
        return f"{several} of decoder layer {self.layer}, counted from 0"


@dataclass(frozen=True)
class Alignment:
    """`weights[j][i]`: the share of word j's look that fell on source word i; the shares of a word sum to 1.

    `outside[j]` is how much of the look fell on the source's end instead, before the shares were made to sum to 1.
    """

    source: list[str]
    target: list[str]
    weights: list[list[float]]
    outside: list[float]

    def document(self) -> dict[str, object]:
        return asdict(self)

    def pharaoh(self) -> str:
        """`i-j` for each target word j and the source word i it looks at most, both from 0."""
        return " ".join(f"{max(range(len(row)), key=row.__getitem__)}-{j}" for j, row in enumerate(self.weights))


def default_alignment_heads(model: TranslationModel) -> AlignmentHeads:
    """The mean of all heads of a Transformer's last layer but one; what a recurrent model has."""
    if isinstance(model, Transformer):
        return AlignmentHeads(
            max(model.config.num_hidden_layers - 2, 0), tuple(range(model.config.num_attention_heads))
        )
    return AlignmentHeads(0, (0,))


def check_has_attention(model: TranslationModel) -> None:
    """InputError for a model without attention."""
    if can(model, "recurrent") and model.decoder.cross is None:
        raise InputError("this model has no attention (model.score is none), so it has no alignment; train one with it")


def align(
    model: TranslationModel, subwords: Subwords, text: str, ids: Sequence[int], *, alignment_heads: AlignmentHeads
) -> Alignment:
    """The alignment of a text with the translation that `ids` say, which need no end token."""
    check_has_attention(model)
    source = subwords.encode_sources([text])[0]
    pieces = [*source[:-1]], [*ids]
    words = subwords.source.decode(pieces[0]).split(), subwords.target.decode(pieces[1]).split()
    if not words[0] or not words[1]:
        return Alignment(words[0], words[1], [], [])
    seen = _map(model, source, [*ids, subwords.end], alignment_heads)[: len(ids)]
    rows = torch.zeros(len(words[1]), seen.shape[1], dtype=seen.dtype)
    places = torch.tensor(word_indices(subwords.target, pieces[1]))
    rows.index_add_(0, places, seen)
    rows = rows / torch.bincount(places, minlength=len(rows))[:, None].clamp(min=1)
    shares = torch.zeros(len(rows), len(words[0]), dtype=seen.dtype)
    shares.index_add_(1, torch.tensor(word_indices(subwords.source, pieces[0])), rows[:, :-1])
    outside = rows[:, -1]
    shares = shares / shares.sum(1, keepdim=True).clamp(min=1e-12)
    return Alignment(*words, shares.tolist(), outside.tolist())


def _map(model: TranslationModel, source: Sequence[int], target: Sequence[int], looking: AlignmentHeads) -> Tensor:
    """How much each token of the target looks at each of the source, (T, S), on the CPU."""
    device = next(model.parameters()).device
    with evaluation_mode(model), record(model) as tape:
        teacher_forced_logits(
            model, torch.tensor([source], device=device), Padded(), torch.tensor([target], device=device)
        )
    layers = tape.attention("cross", "decoder")
    if not 0 <= looking.layer < len(layers) or not set(looking.heads) <= set(range(layers[0].shape[1])):
        raise InputError(
            f"alignments of layer {looking.layer}, heads {list(looking.heads)} were asked for, and the decoder has "
            f"layers 0 to {len(layers) - 1} of {layers[0].shape[1]} heads"
        )
    return layers[looking.layer][0, list(looking.heads)].mean(0).double().cpu()
