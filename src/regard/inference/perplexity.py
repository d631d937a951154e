"""How well a model predicts a text: perplexity of a causal model, pseudo-perplexity of a masked one.

A causal model reads windows; each token is scored once, from what stands before it in its window. A masked model sees
both sides: each token is masked in turn, alone, in the middle of a window of its own. The two kinds do not compare.
Knows texts and tokenizers; the arithmetic is in `surprise`.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from regard.checkpoints.ready import MaskedLM, describe_model, evaluation_mode, require_tokenizer
from regard.data.files import display_name, read_all_lines
from regard.errors import InputError
from regard.inference.surprise import Progress, causal_nll, masked_nll
from regard.models import Bert, Gpt
from regard.text import Tokenizer

__all__ = ["Perplexity", "measure_perplexity", "read_text_file"]


@dataclass(frozen=True)
class Perplexity:
    """`nll` is the sum over the `tokens` scored, in nats; `perplexity` is exp(nll / tokens).

    `bits_per_byte` is for all `text_tokens` and `bytes` of the text. Tokens that were not scored (outside a sample; the
    first one, where the model has no begin token) count there as the mean of those that were.
    `unknown` of the text's tokens stand for words the vocabulary cannot spell: they are easy to predict.
    """

    kind: str
    tokens: int
    bytes: int
    nll: float
    perplexity: float
    bits_per_byte: float
    text_tokens: int
    unknown: int


def read_text_file(path: str | os.PathLike[str]) -> str:
    """The text of a file or of standard input, compressed or not: its lines with a line feed between them."""
    text = "\n".join(read_all_lines(path))
    if not text.strip():
        raise InputError(f"{display_name(path)} is empty; expected a text to score")
    return text


def measure_perplexity(
    model: nn.Module,
    tokenizer: Tokenizer | None,
    text: str,
    *,
    stride: int | None = None,
    max_length: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> Perplexity:
    """Score every token of a text; or, of a masked model, which reads a window for each, `sample` of them by chance.

    `max_length` is the size of a window in tokens; unless given, the positions of the model. `stride` is how far one
    window of a causal model is from the next; unless given, half a window. From the second window on, a token is
    predicted from at least `max_length - stride + 1` tokens.
    """
    tell = on_progress or (lambda done, total: None)
    with evaluation_mode(model):
        if isinstance(model, Gpt):
            if sample is not None:
                raise InputError("sample is for masked models; a causal one scores whole windows at once: leave it out")
            return _causal(model, require_tokenizer(model, tokenizer), text, stride, max_length, tell)
        if not isinstance(model, Bert):
            raise InputError(
                f"perplexity needs a model that predicts words, and this is {describe_model(model)} model; "
                "take a GPT-2, or a BERT, DistilBERT or RoBERTa with its masked-word head"
            )
        if stride is not None:
            raise InputError("stride is for causal models; a masked one reads a window for each token: leave it out")
        asked = MaskedLM.of(model, tokenizer, doing="pseudo-perplexity")
        return _pseudo(asked, text, max_length, sample, seed, tell)


def _causal(
    model: Gpt, tokenizer: Tokenizer, text: str, stride: int | None, max_length: int | None, tell: Progress
) -> Perplexity:
    length = _length(max_length, model.config.max_position_embeddings)
    step = max(1, length // 2) if stride is None else stride
    if not 1 <= step <= length:
        raise InputError(f"stride is {step}; expected 1 to {length}, the tokens of a window, so that none is left out")
    body = tokenizer.encode(text, special=False).ids
    # A published config.json may name a begin token that the vocabulary lacks.
    known = [n for n in (model.config.bos_token_id, tokenizer.bos) if n is not None and n < model.config.vocab_size]
    ids = [*known[:1], *body]
    if len(ids) < 2:
        raise InputError(f"the text has {len(body)} tokens and the model no begin token: nothing can be predicted")
    nll = causal_nll(model, ids, length=length, stride=step, tell=tell)
    return _result("perplexity", nll, len(ids) - 1, text, len(body), unknown=0)


def _pseudo(
    asked: MaskedLM, text: str, max_length: int | None, sample: int | None, seed: int, tell: Progress
) -> Perplexity:
    length = _length(max_length, asked.limit)
    if sample is not None and sample < 1:
        raise InputError(f"sample is {sample}; expected the number of tokens to score, at least 1")
    encoding = asked.tokenizer.encode(text)
    inner = [place for place, special in enumerate(encoding.special) if not special]
    if not inner:
        raise InputError("the text has no tokens for this model; give it a word")
    first, end = inner[0], inner[-1] + 1
    around, body = (encoding.ids[:first], encoding.ids[end:]), encoding.ids[first:end]
    room = length - (len(encoding) - len(body))
    if room < 1:
        raise InputError(f"max_length is {length}, and {len(encoding) - len(body)} special tokens leave no room in it")
    places: Sequence[int] = range(len(body))
    if sample is not None and sample < len(body):
        places = sorted(random.Random(seed).sample(places, sample))
    nll = masked_nll(asked, body, around=around, places=places, length=min(len(body), room), tell=tell)
    unknown = sum(number == asked.tokenizer.unknown for number in body)
    return _result("pseudo-perplexity", nll, len(places), text, len(body), unknown=unknown)


def _length(wanted: int | None, positions: int) -> int:
    if wanted is not None and not 1 <= wanted <= positions:
        raise InputError(f"max_length is {wanted}; expected 1 to {positions}, the positions of this model")
    return wanted or positions


def _result(kind: str, nll: float, scored: int, text: str, tokens: int, *, unknown: int) -> Perplexity:
    mean = nll / scored
    size = len(text.encode("utf-8", "surrogatepass"))
    return Perplexity(
        kind=kind,
        tokens=scored,
        bytes=size,
        nll=nll,
        perplexity=math.inf if mean > 700 else math.exp(mean),  # a float ends at exp(709)
        bits_per_byte=mean * tokens / size / math.log(2),
        text_tokens=tokens,
        unknown=unknown,
    )
