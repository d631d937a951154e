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
from regard.checkpoints.ready import Masked, kind_of
from regard.errors import InputError, choice
from regard.inference.masked_lm import BLANK_PATTERN, find_blanks
from regard.interpret.faithfulness.trial import Trial, check_length, task_trial, trial_of, vocabulary
from regard.models import Bert, Gpt
from regard.nn import Padded
from regard.tasks.folder import is_solved, read_task
from regard.text import Tokenizer

__all__ = ["AT", "LONGEST", "InTurn", "asked_at", "open_at", "possible", "thinned"]

AT = ("blanks", "masked", "plain")
LONGEST = 128  # tokens of a text each of which is hidden in turn: the work grows with their square
BEHIND = "next token"


@dataclass(frozen=True, eq=False)
class InTurn(Trial):
    """A trial whose places are each hidden in a row of their own; `read` makes (B, P, O) of their states (B, P, W)."""

    mask: int = 0

    @property
    def rows(self) -> int:
        return len(self.spots)

    def logits(self, given: Tensor | None = None, *, segments: Tensor | None = None) -> Tensor:
        """(B, P, O) of ids (B, T); by default of the text itself."""
        given = self.ids[None] if given is None else given
        if given.is_floating_point():
            raise ValueError("a text that is hidden in turn is read by its tokens, not by vectors in their place")
        copies, spots = len(given), torch.tensor(self.spots, device=given.device)
        hidden = given.repeat_interleave(self.rows, 0)
        places = torch.arange(len(hidden), device=given.device), spots.repeat(copies)
        hidden[places] = self.mask
        states = self.encoder(hidden, Padded())[places]
        return self.read(states.view(copies, self.rows, -1)).float()


def open_at(
    name_or_path: str | os.PathLike[str],
    text: str,
    second: str | None = None,
    *,
    at: str = "blanks",
    device: torch.device | str = "cpu",
) -> Trial:
    """Load a model by its name or folder, and ask it of a text at the blanks or at every token."""
    folder = loading.find(name_or_path)
    if not is_solved(folder):
        return asked_at(*loading.load(folder, device=device), text, second, at=at)
    choice("--at", at, AT)
    if at != "blanks":
        raise InputError(f"a tuned model answers with its labels, not at every token; leave out 'at', which is {at}")
    return task_trial(read_task(folder, device=device), text, second)


def asked_at(
    model: nn.Module, tokenizer: Tokenizer | None, text: str, second: str | None = None, *, at: str = "blanks"
) -> Trial:
    """A pretrained model that is asked of a text at the blanks or the end, or at every token."""
    choice("--at", at, AT)
    if at == "blanks" or second is not None or not isinstance(model, Bert | Gpt):
        return trial_of(model, tokenizer, text, second)
    if at not in possible(model):
        raise InputError(
            f"{kind_of(model)} model reads on without hiding a token: 'masked' is for a BERT; take 'plain'"
        )
    return _following(model, tokenizer, text) if isinstance(model, Gpt) else _each(model, tokenizer, text, at)


def possible(model: nn.Module) -> tuple[str, ...]:
    """Where a pretrained model can be asked, the most telling way first."""
    if isinstance(model, Gpt):
        return "plain", "blanks"
    return ("masked", "plain", "blanks") if isinstance(model, Bert) else ("blanks",)


def thinned(trial: Trial, most: int) -> Trial:
    """The same trial at so many of its places, evenly spread, where each costs rows of its own."""
    count = len(trial.places)
    if not isinstance(trial, InTurn) or count <= most:
        return trial
    kept = [place * count // most for place in range(most)]
    return replace(trial, places=tuple(trial.places[i] for i in kept), spots=tuple(trial.spots[i] for i in kept))


def _each(model: Bert, tokenizer: Tokenizer | None, text: str, at: str) -> Trial:
    asked = Masked.of(model, tokenizer, doing="predicting every token")
    names = asked.tokenizer
    blank = re.search(f"{re.escape(names.token(asked.mask))}|{BLANK_PATTERN}", text)
    ids = find_blanks(text, names, asked.mask).ids if blank else names.encode(text).ids
    check_length(len(ids), asked.limit)
    around = {names.cls, names.sep, names.bos, names.eos, names.pad}
    spots = tuple(place for place, number in enumerate(ids) if number not in around)
    if not spots:
        raise InputError("the text is empty; expected some words")
    if at == "masked" and len(spots) > LONGEST:
        raise InputError(
            f"the text has {len(spots)} tokens, and at most {LONGEST} are hidden in turn; shorten it, or ask 'plain'"
        )
    plain = Trial(
        task="fill",
        texts=(text,),
        model=model,
        encoder=model,
        tokenizer=names,
        ids=torch.tensor(ids, device=asked.head.bias.device),
        segments=None,
        places=tuple(f"{spot} {names.token(ids[spot])}" for spot in spots),
        outputs=vocabulary(names, len(asked.head.bias)),
        kind="one",
        read=lambda hidden: asked.head(hidden[:, list(spots)]),
        spots=spots,
    )
    if at == "plain":
        return plain
    return InTurn(**{**vars(plain), "read": asked.head, "mask": asked.mask})


def _following(model: Gpt, tokenizer: Tokenizer | None, text: str) -> Trial:
    """What a GPT expects behind each token: the first one is never asked for."""
    end = trial_of(model, tokenizer, text)
    numbers = end.ids.tolist()
    spots = tuple(range(1, len(numbers) + 1))
    names = [*(f"{spot} {end.shown(numbers[spot]).strip()}" for spot in spots[:-1]), BEHIND]
    return replace(end, places=tuple(names), spots=spots, read=model.logits)
