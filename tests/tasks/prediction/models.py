"""Fine-tuned models with random heads for every task, and input for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regard.checkpoints import loading
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.multiple_choice import MultipleChoice
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.regression import Regression
from regard.tasks.task import Task
from regard.tasks.text_classification import PairClassification, TextClassification
from regard.tasks.token_classification import TokenClassification

# A table as people export it: BOM, CR LF, semicolons, quotes, line breaks in cells, emoji, blank cells and rows.
MESSY = (
    b"\xef\xbb\xbfid;date;review;stars\r\n"
    b'7;2024-01-02;"a fine; ""good"" film";5\r\n'
    b"8;2024-01-03;;3\r\n"
    b'9;2024-01-04;"so\r\nlong \xf0\x9f\x98\x80";1\r\n'
    b";;;\r\n"
    b"7;2024-01-05;bad;1\r\n"
)
ANSWERED = [0, 2, 4]  # rows with a text
LINES = [2, 3, 4, 6, 7]

TASKS: dict[str, Task[Any]] = {
    "classify": TextClassification(["bad", "good"]),
    "multi": TextClassification(["bad", "good", "long"], multi_label=True),
    "pair": PairClassification(["no", "yes"]),
    "regress": Regression(0.0, 1.0),
    "choose": MultipleChoice(),
    "tag": TokenClassification(["O", "B-X", "I-X"]),
    "answer": QuestionAnswering(),
}


def random_model(task: Task[Any], folder: Path, length: int = 64) -> FineTunedModel:
    """A model with a random head for the encoder in a folder."""
    encoder, tokenizer = loading.load(folder)
    torch.manual_seed(1)
    return FineTunedModel(task, EncoderWithHead.from_encoder(encoder, task).eval(), tokenizer, length)
