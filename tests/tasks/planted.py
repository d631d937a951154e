"""A model that says of each token what it was told to, wherever that stands; questions with their answers."""

from __future__ import annotations

from torch import Tensor, nn

from regard.data.examples import Answer, QuestionExample
from regard.models import Bert, Gpt
from regard.tasks.encoder_with_head import EncoderWithHead, TaskBatch, TaskHead

__all__ = ["Planted", "asked"]


class Planted(EncoderWithHead):
    """`table` (V, outputs) has the numbers of each token id. The encoder only says of which family it is."""

    def __init__(self, encoder: Bert | Gpt, table: Tensor) -> None:
        super().__init__(encoder, TaskHead(1, table.shape[1], pool=None, dropout=0.0))
        self.table = nn.Parameter(table)

    def forward(self, inputs: TaskBatch) -> Tensor:
        ids = inputs.batch.ids
        return self.table[ids if inputs.positions is None else ids[inputs.positions]]


def asked(context: str, *answers: str, question: str = "what film", answerable: bool = True) -> QuestionExample:
    found = tuple(Answer(answer, context.index(answer)) for answer in answers)
    return QuestionExample("q1", question, context, found, answerable)
