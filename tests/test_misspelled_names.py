"""Misspelled names are rejected with a suggestion everywhere; none silently builds something else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from regard.errors import InputError
from regard.models import Bert, BertConfig, Seq2SeqConfig
from regard.nn.block import LayerConfig
from regard.nn.embedding import sinusoids
from regard.nn.recurrent import Recurrent

CASES: list[tuple[Callable[[], object], str]] = [
    (lambda: Seq2SeqConfig(score="addditive"), "did you mean 'additive'"),  # type: ignore[arg-type]
    (lambda: Seq2SeqConfig(recipe="loung"), "did you mean 'luong'"),  # type: ignore[arg-type]
    (lambda: Seq2SeqConfig(cell="rnn"), "choices: gru, lstm"),  # type: ignore[arg-type]
    (lambda: Seq2SeqConfig(feedback="argmax"), "unknown feedback 'argmax'"),  # type: ignore[arg-type]
    (lambda: Recurrent(4, 4, cell="rnn"), "unknown cell 'rnn'"),  # type: ignore[arg-type]
    (lambda: sinusoids(torch.arange(3), 4, arrangement="half"), "did you mean 'halves'"),  # type: ignore[arg-type]
    (lambda: LayerConfig(8, 2, 16, norm="batch"), "unknown norm 'batch'"),  # type: ignore[arg-type]
    (lambda: LayerConfig(8, 2, 16, activation="gleu"), "did you mean 'gelu'"),
    (lambda: LayerConfig(10, 4, 16), "4 heads do not divide a width of 10"),
    (lambda: Bert(BertConfig(), output_heads=["mlm_hed"]), "did you mean 'mlm_head'"),
    (lambda: Bert(BertConfig(family="distilbert"), output_heads=["nsp_head"]), "unknown head 'nsp_head'"),
    (lambda: Bert(BertConfig(family="brt")), "did you mean 'bert'"),
]


@pytest.mark.parametrize(("make", "message"), CASES, ids=[message for _, message in CASES])
def test_misspelled_names(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
