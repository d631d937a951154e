"""One text put to one model that answers with numbers: a BERT is asked for the words of its blanks, a GPT for the next
token, a tuned model for its labels.

It can be asked as it is, with other vectors in place of its tokens, or with tokens taken out, always in float32. Knows
which families and tasks can be asked; knows nothing of what is then changed or measured.

B copies, T tokens, P places that are asked about, O numbers for each of them, W width.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.checkpoints import loading
from regard.checkpoints.ready import MaskedLM, describe_model, evaluation_mode, family_name
from regard.data.examples import Example, Question, Tagged, Text
from regard.data.readers import words_of
from regard.errors import InputError, choice
from regard.inference.generation.writing import Writer
from regard.inference.marks import find_blanks
from regard.interpret.attention.token_axis import display_token
from regard.models import Bert, Gpt
from regard.nn import Padded
from regard.tasks.base import Item
from regard.tasks.folder import Solved, is_solved, read_task
from regard.tasks.model import Tuned
from regard.tasks.rows import Rows
from regard.text import Tokenizer

__all__ = ["OutputKind", "Probe", "check_length", "open_probe", "output_names", "pretrained_probe", "task_probe"]

OutputKind = Literal[
    "one", "several", "value"
]  # one of the outputs is right; any number of them; the output is a number
SECOND = {"pair": "the second text", "answer": "the context, the first being the question"}
ALONE = ("classify", "tag")  # read one text, never two
TASKS = ("answer", "classify", "pair", "regress", "tag")


@dataclass(frozen=True, eq=False)
class Probe:
    """`task` is fill, next or a tuned model's task. `places` and `outputs` are named as people know them.

    `special` marks tokens that are no part of the text. `read` makes (B, P, O) of the last hidden states (B, T, W).
    `spots` are the tokens that the places are about, where each is about one; the number behind the last token is what
    follows the text.
    """

    task: str
    texts: tuple[str, ...]
    model: nn.Module
    encoder: Bert | Gpt
    tokenizer: Tokenizer
    ids: Tensor
    segments: Tensor | None
    targets: tuple[str, ...]
    outputs: tuple[str, ...]
    kind: OutputKind
    read: Callable[[Tensor], Tensor]
    positions: tuple[int, ...] = ()

    @property
    def rows_per_copy(self) -> int:
        """How many rows the model reads for one copy of the text."""
        return 1

    @property
    def tokens(self) -> tuple[str, ...]:
        return tuple(self.tokenizer.token(number) for number in self.ids.tolist())

    @property
    def special(self) -> tuple[bool, ...]:
        names = self.tokenizer
        around = {names.cls, names.sep, names.bos, names.eos, names.pad}
        return tuple(number in around for number in self.ids.tolist())

    @property
    def num_layers(self) -> int:
        return self.encoder.config.num_hidden_layers

    @property
    def num_heads(self) -> int:
        return self.encoder.config.num_attention_heads

    def token_embeddings(self) -> Tensor:
        """What the model looks up for its tokens, (T, W)."""
        found: Tensor = self.encoder.embedding.tokens(self.ids)
        return found

    def logits(self, given: Tensor | None = None, *, segments: Tensor | None = None) -> Tensor:
        """(B, P, O) of ids (B, T) or of vectors (B, T, W) in their place; by default of the text itself."""
        given = self.ids[None] if given is None else given
        if self.segments is None:
            hidden = self.encoder(given, Padded())
        else:
            hidden = self.encoder(
                given, Padded(), self.segments.expand(given.shape[:2]) if segments is None else segments
            )
        return self.read(hidden).float()

    def logits_of_subsets(self, keep: Tensor) -> Tensor:
        """The logits (B, P, O) of copies with some tokens only: `keep` (B, T) is True at as many in every row."""
        rows = self.ids.expand(keep.shape)[keep].view(len(keep), -1)
        segments = None if self.segments is None else self.segments.expand(keep.shape)[keep].view(len(keep), -1)
        return self.logits(rows, segments=segments)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probabilities in float64 (of the labels each its own where there may be several), or the values."""
        match self.kind:
            case "one":
                return logits.double().softmax(-1)
            case "several":
                return logits.double().sigmoid()
        return logits.double()

    def token_text(self, number: int) -> str:
        """A token as text; of one that is only white space, a sign for each character."""
        return display_token(self.tokenizer, number)

    def output_index(self, name: str) -> int:
        """The place of an output; InputError for a name that is none."""
        if name not in self.outputs:
            if self.task in ("fill", "next"):
                self.tokenizer.id(name)  # whose error gives the nearest tokens, not all of them
            choice("label", name, self.outputs)
        return self.outputs.index(name)

    @contextmanager
    def evaluation_mode(self, *, gradients: bool = False) -> Iterator[None]:
        """No dropout inside, and gradients only where they are asked for."""
        with evaluation_mode(self.model), torch.inference_mode(not gradients), torch.set_grad_enabled(gradients):
            yield


def open_probe(
    name_or_path: str | os.PathLike[str],
    text: str,
    second: str | None = None,
    *,
    device: torch.device | str = "cpu",
) -> Probe:
    """Load a folder that `regard train` wrote, or a BERT or GPT by its name, and put a text to it."""
    folder = loading.find_folder(name_or_path)
    if is_solved(folder):
        return task_probe(read_task(folder, device=device), text, second)
    return pretrained_probe(*loading.load(folder, device=device), text, second)


def pretrained_probe(model: nn.Module, tokenizer: Tokenizer | None, text: str, second: str | None = None) -> Probe:
    """A pretrained model: a BERT is asked for the blanks of the text, a GPT for what follows it."""
    if not isinstance(model, Bert | Gpt):
        raise InputError(
            f"expected a BERT or a GPT, or what `regard train` made of one, and this is {describe_model(model)} model"
        )
    if second is not None:
        raise InputError(
            f"a second text is for a tuned model that reads two, and this is a pretrained {family_name(model)} model; "
            "leave it out"
        )
    return _next(model, tokenizer, text) if isinstance(model, Gpt) else _blanks(model, tokenizer, text)


def _blanks(model: Bert, tokenizer: Tokenizer | None, text: str) -> Probe:
    asked = MaskedLM.of(model, tokenizer, doing="filling in blanks")
    marked = find_blanks(text, asked.tokenizer, asked.mask)
    check_length(len(marked.ids), asked.limit)
    count = len(marked.places)
    return Probe(
        task="fill",
        texts=(text,),
        model=model,
        encoder=model,
        tokenizer=asked.tokenizer,
        ids=torch.tensor(marked.ids, device=asked.head.bias.device),
        segments=None,
        targets=tuple(f"blank {number}" for number in range(1, count + 1)) if count > 1 else ("blank",),
        outputs=output_names(asked.tokenizer, len(asked.head.bias)),
        kind="one",
        read=lambda hidden: asked.head(hidden[:, marked.places]),
        positions=tuple(marked.places),
    )


def _next(model: Gpt, tokenizer: Tokenizer | None, text: str) -> Probe:
    writer = Writer(model, tokenizer)
    prompt = writer.prompt(text, max_tokens=1)
    check_length(len(prompt.ids) + prompt.cut, model.config.max_position_embeddings)
    return Probe(
        task="next",
        texts=(text,),
        model=model,
        encoder=model,
        tokenizer=writer.tokenizer,
        ids=torch.tensor(prompt.ids, device=model.embedding.tokens.weight.device),
        segments=None,
        targets=("next token",),
        outputs=output_names(writer.tokenizer, model.config.vocab_size),
        kind="one",
        read=lambda hidden: model.logits(hidden[:, -1:]),
        positions=(len(prompt.ids),),
    )


def task_probe(solved: Solved, text: str, second: str | None = None) -> Probe:
    """A tuned model: classify and tag take a text, regress one or two, pair two, answer a question and its context."""
    task, model, name = solved.task, solved.model, solved.task.name
    if not isinstance(model, Tuned) or not isinstance(model.encoder, Bert | Gpt) or name not in TASKS:
        raise InputError(
            f"expected a tuned BERT or GPT that does one of {', '.join(TASKS)}; this is "
            f"{describe_model(model.encoder)} model for {name}"
        )
    rows, encoder, tokenizer = solved.rows, model.encoder, solved.tokenizer
    assert isinstance(rows, Rows)
    assert tokenizer is not None
    item = _item(solved, rows, text, second)
    row = item.rows[0]
    # From the end, so that it still is the last one where tokens are taken out.
    asked = [-1] if task.pooled and rows.causal else row.places
    places: tuple[str, ...] = ("text",)
    if name == "tag":
        words = words_of(text)
        places = tuple(text[words[word][0] : words[word][1]] for word in item.note)
    elif name == "answer":
        places = "start", "end"

    def read(hidden: Tensor) -> Tensor:
        found: Tensor = model.head(hidden if asked is None else hidden[:, asked])
        return found.transpose(1, 2) if name == "answer" else found

    device = encoder.embedding.tokens.weight.device
    segments = torch.tensor(row.segments, device=device)
    return Probe(
        task=name,
        texts=(text,) if second is None else (text, second),
        model=model,
        encoder=encoder,
        tokenizer=tokenizer,
        ids=torch.tensor(row.ids, device=device),
        segments=segments if isinstance(encoder, Bert) and encoder.config.type_vocab_size else None,
        targets=places,
        outputs=tuple(map(tokenizer.token, row.ids)) if name == "answer" else task.labels,
        kind="value" if name == "regress" else "several" if getattr(task, "several", False) else "one",
        read=read,
        positions=tuple(row.places or ()) if name == "tag" else (),
    )


def _item(solved: Solved, rows: Rows, text: str, second: str | None) -> Item:
    """The one row that a text makes; InputError where it makes none or more, or is cut."""
    name = solved.task.name
    if name in SECOND and second is None:
        raise InputError(f"{name} reads two texts; give {SECOND[name]} too")
    if name in ALONE and second is not None:
        raise InputError(f"{name} reads one text, and two were given; leave the second out")
    items: list[Item] = solved.task.items([_example(name, text, second)], rows)
    count = sum(len(item.rows) for item in items)
    if count != 1:
        why = f"this one makes {count}; shorten it" if count else "this one has no word"
        raise InputError(f"expected a text that the model reads in one row, and {why}")
    if cut := items[0].rows[0].cut:
        raise InputError(f"the text is {cut} tokens longer than the {solved.length} that this model reads; shorten it")
    return items[0]


def _example(task: str, text: str, second: str | None) -> Example:
    if task == "tag":
        return Tagged(text, tuple(words_of(text)))
    return Question("", text, second or "") if task == "answer" else Text(text, second)


def output_names(tokenizer: Tokenizer, count: int) -> tuple[str, ...]:
    """A name for each output; an output layer may be wider than the vocabulary."""
    spelled = {number: token for token, number in tokenizer.vocabulary.items()}
    return tuple(spelled.get(number, f"#{number}") for number in range(count))


def check_length(tokens: int, limit: int) -> None:
    if tokens > limit:
        raise InputError(f"the text has {tokens} tokens, and this model reads {limit}; shorten it by {tokens - limit}")
