"""One text put to a pretrained model at every token, not only at its blanks or its end.

A BERT is asked for each token, hidden in its turn (`masked`) or left where it stands (`plain`); a GPT for what follows
each token (`plain`). `blanks` is what a plain trial asks: the blanks, the next token, a tuned model's labels. Knows
pretrained models and trials; knows nothing of what is then changed or measured.

B copies, P places, T tokens, W width.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.checkpoints import loading
from regard.checkpoints.ready import MaskedLM, describe_model
from regard.errors import InputError, choice
from regard.inference.marks import MARK, find_blanks
from regard.interpret.attribution.probe import Probe, check_length, output_names, pretrained_probe, task_probe
from regard.models import Bert, Gpt
from regard.nn import Padded
from regard.tasks.folder import is_solved, read_task
from regard.text import Tokenizer

__all__ = [
    "MAX_MASKED_TOKENS",
    "MODES",
    "MaskedInTurnProbe",
    "open_probe_at",
    "probe_at",
    "probe_modes",
    "subsample_targets",
]

MODES = ("blanks", "masked", "plain")
MAX_MASKED_TOKENS = 128  # tokens of a text each of which is hidden in turn: the work grows with their square
BEHIND = "next token"


@dataclass(frozen=True, eq=False)
class MaskedInTurnProbe(Probe):
    """A trial whose places are each hidden in a row of their own; `read` makes (B, P, O) of their states (B, P, W)."""

    mask: int = 0

    @property
    def rows_per_copy(self) -> int:
        return len(self.positions)

    def logits(self, given: Tensor | None = None, *, segments: Tensor | None = None) -> Tensor:
        """(B, P, O) of ids (B, T); by default of the text itself."""
        given = self.ids[None] if given is None else given
        if given.is_floating_point():
            raise ValueError("a text that is hidden in turn is read by its tokens, not by vectors in their place")
        copies, spots = len(given), torch.tensor(self.positions, device=given.device)
        hidden = given.repeat_interleave(self.rows_per_copy, 0)
        places = torch.arange(len(hidden), device=given.device), spots.repeat(copies)
        hidden[places] = self.mask
        states = self.encoder(hidden, Padded())[places]
        return self.read(states.view(copies, self.rows_per_copy, -1)).float()


def open_probe_at(
    name_or_path: str | os.PathLike[str],
    text: str,
    second: str | None = None,
    *,
    at: str = "blanks",
    device: torch.device | str = "cpu",
) -> Probe:
    """Load a model by its name or folder, and ask it of a text at the blanks or at every token."""
    folder = loading.find_folder(name_or_path)
    if not is_solved(folder):
        return probe_at(*loading.load(folder, device=device), text, second, at=at)
    choice("--at", at, MODES)
    if at != "blanks":
        raise InputError(f"a tuned model answers with its labels, not at every token; leave out 'at', which is {at}")
    return task_probe(read_task(folder, device=device), text, second)


def probe_at(
    model: nn.Module, tokenizer: Tokenizer | None, text: str, second: str | None = None, *, at: str = "blanks"
) -> Probe:
    """A pretrained model that is asked of a text at the blanks or the end, or at every token."""
    choice("--at", at, MODES)
    if at == "blanks" or second is not None or not isinstance(model, Bert | Gpt):
        return pretrained_probe(model, tokenizer, text, second)
    if at not in probe_modes(model):
        raise InputError(
            f"{describe_model(model)} model reads on without hiding a token: 'masked' is for a BERT; take 'plain'"
        )
    return _following(model, tokenizer, text) if isinstance(model, Gpt) else _each(model, tokenizer, text, at)


def probe_modes(model: nn.Module) -> tuple[str, ...]:
    """Where a pretrained model can be asked, the most telling way first."""
    if isinstance(model, Gpt):
        return "plain", "blanks"
    return ("masked", "plain", "blanks") if isinstance(model, Bert) else ("blanks",)


def subsample_targets(trial: Probe, most: int) -> Probe:
    """The same trial at so many of its places, evenly spread, where each costs rows of its own."""
    count = len(trial.targets)
    if not isinstance(trial, MaskedInTurnProbe) or count <= most:
        return trial
    kept = [place * count // most for place in range(most)]
    return replace(
        trial, targets=tuple(trial.targets[i] for i in kept), positions=tuple(trial.positions[i] for i in kept)
    )


def _each(model: Bert, tokenizer: Tokenizer | None, text: str, at: str) -> Probe:
    asked = MaskedLM.of(model, tokenizer, doing="predicting every token")
    names = asked.tokenizer
    blank = re.search(f"{re.escape(names.token(asked.mask))}|{MARK}", text)
    ids = find_blanks(text, names, asked.mask).ids if blank else names.encode(text).ids
    check_length(len(ids), asked.limit)
    around = {names.cls, names.sep, names.bos, names.eos, names.pad}
    spots = tuple(place for place, number in enumerate(ids) if number not in around)
    if not spots:
        raise InputError("the text is empty; expected some words")
    if at == "masked" and len(spots) > MAX_MASKED_TOKENS:
        raise InputError(
            f"the text has {len(spots)} tokens, and at most {MAX_MASKED_TOKENS} are masked in turn; "
            "shorten it, or use 'plain'"
        )
    plain = Probe(
        task="fill",
        texts=(text,),
        model=model,
        encoder=model,
        tokenizer=names,
        ids=torch.tensor(ids, device=asked.head.bias.device),
        segments=None,
        targets=tuple(f"{spot} {names.token(ids[spot])}" for spot in spots),
        outputs=output_names(names, len(asked.head.bias)),
        kind="one",
        read=lambda hidden: asked.head(hidden[:, list(spots)]),
        positions=spots,
    )
    if at == "plain":
        return plain
    return MaskedInTurnProbe(**{**vars(plain), "read": asked.head, "mask": asked.mask})


def _following(model: Gpt, tokenizer: Tokenizer | None, text: str) -> Probe:
    """What a GPT expects behind each token: the first one is never asked for."""
    end = pretrained_probe(model, tokenizer, text)
    numbers = end.ids.tolist()
    spots = tuple(range(1, len(numbers) + 1))
    names = [*(f"{spot} {end.token_text(numbers[spot]).strip()}" for spot in spots[:-1]), BEHIND]
    return replace(end, targets=tuple(names), positions=spots, read=model.logits)
