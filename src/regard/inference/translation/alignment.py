"""Word alignments from cross-attention: soft, as weights, and hard, in Pharaoh format `i-j`.

Words are separated by spaces. The decoder reads the translation (teacher forcing), so any translation can be aligned.
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
from regard.nn.recording import record
from regard.nn.training import evaluation_mode


@dataclass(frozen=True)
class AlignmentHeads:
    """The attention that defines alignments: a decoder layer, from 0, and the heads whose attention is averaged."""

    layer: int
    heads: tuple[int, ...]

    def document(self) -> dict[str, object]:
        return {"layer": self.layer, "heads": list(self.heads)}

    def __str__(self) -> str:
        several = f"the mean of heads {', '.join(map(str, self.heads))}" if len(self.heads) > 1 else "the only head"
        return f"{several} of decoder layer {self.layer}, counted from 0"


@dataclass(frozen=True)
class Alignment:
    """`weights[j][i]` is the attention of target word j to source word i; the weights of a word sum to 1.

    `outside[j]` is the attention to the end token of the source, before normalization.
    """

    source: list[str]
    target: list[str]
    weights: list[list[float]]
    outside: list[float]

    def document(self) -> dict[str, object]:
        return asdict(self)

    def pharaoh(self) -> str:
        """`i-j` for each target word j and the source word i with the highest weight, both from 0."""
        return " ".join(f"{max(range(len(row)), key=row.__getitem__)}-{j}" for j, row in enumerate(self.weights))


def default_alignment_heads(model: TranslationModel) -> AlignmentHeads:
    """The mean of all heads of a Transformer's second-to-last layer; the attention of a recurrent model."""
    if isinstance(model, Transformer):
        return AlignmentHeads(
            max(model.config.num_hidden_layers - 2, 0), tuple(range(model.config.num_attention_heads))
        )
    return AlignmentHeads(0, (0,))


def check_has_attention(model: TranslationModel) -> None:
    """Raise InputError for a model without attention."""
    if can(model, "recurrent") and model.decoder.cross is None:
        raise InputError(
            "this model has no attention (model.score is none), so it has no alignment; train one with attention"
        )


def align(
    model: TranslationModel, subwords: Subwords, text: str, ids: Sequence[int], *, alignment_heads: AlignmentHeads
) -> Alignment:
    """Align a text with a translation, given by its `ids` without an end token."""
    check_has_attention(model)
    source = subwords.encode_sources([text])[0]
    pieces = [*source[:-1]], [*ids]
    words = subwords.source.decode(pieces[0]).split(), subwords.target.decode(pieces[1]).split()
    if not words[0] or not words[1]:
        return Alignment(words[0], words[1], [], [])
    attention = _cross_attention(model, source, [*ids, subwords.end], alignment_heads)[: len(ids)]
    # The pieces of a target word are averaged, the pieces of a source word are summed.
    rows = torch.zeros(len(words[1]), attention.shape[1], dtype=attention.dtype)
    target_words = torch.tensor(word_indices(subwords.target, pieces[1]))
    rows.index_add_(0, target_words, attention)
    rows = rows / torch.bincount(target_words, minlength=len(rows))[:, None].clamp(min=1)
    weights = torch.zeros(len(rows), len(words[0]), dtype=attention.dtype)
    weights.index_add_(1, torch.tensor(word_indices(subwords.source, pieces[0])), rows[:, :-1])
    outside = rows[:, -1]
    weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-12)
    return Alignment(*words, weights.tolist(), outside.tolist())


def _cross_attention(
    model: TranslationModel, source: Sequence[int], target: Sequence[int], heads: AlignmentHeads
) -> Tensor:
    """The attention of each target token to each source token, (T, S), on the CPU."""
    device = next(model.parameters()).device
    with evaluation_mode(model), record(model) as tape:
        teacher_forced_logits(
            model, torch.tensor([source], device=device), Padded(), torch.tensor([target], device=device)
        )
    layers = tape.attention("cross", "decoder")
    if not 0 <= heads.layer < len(layers) or not set(heads.heads) <= set(range(layers[0].shape[1])):
        raise InputError(
            f"alignments of layer {heads.layer}, heads {list(heads.heads)} were requested, and the decoder has "
            f"layers 0 to {len(layers) - 1} of {layers[0].shape[1]} heads"
        )
    return layers[heads.layer][0, list(heads.heads)].mean(0).double().cpu()
