"""A model with fixed outputs for each token id, and a helper that builds question examples."""

from __future__ import annotations

from torch import Tensor, nn

from regard.data.examples import Answer, QuestionExample
from regard.models import Bert, Gpt
from regard.tasks.encoder_with_head import EncoderWithHead, TaskBatch, TaskHead

__all__ = ["TableModel", "question_example"]


class TableModel(EncoderWithHead):
    """`table` (V, outputs) holds the outputs for each token id. The encoder only determines the family."""

    def __init__(self, encoder: Bert | Gpt, table: Tensor) -> None:
        super().__init__(encoder, TaskHead(1, table.shape[1], pool=None, dropout=0.0))
        self.table = nn.Parameter(table)

    def forward(self, inputs: TaskBatch) -> Tensor:
        ids = inputs.batch.ids
        return self.table[ids if inputs.positions is None else ids[inputs.positions]]


def question_example(
    context: str, *answers: str, question: str = "what film", answerable: bool = True
) -> QuestionExample:
    found = tuple(Answer(answer, context.index(answer)) for answer in answers)
    return QuestionExample("q1", question, context, found, answerable)
