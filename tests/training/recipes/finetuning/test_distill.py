"""Distillation: the student's initial weights, its loss, and that it learns from its teacher."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from regard.data.examples import ChoiceExample, QuestionExample, TextExample
from regard.errors import InputError
from regard.events import drain
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, load_fine_tuned
from regard.tasks.multiple_choice import MultipleChoice
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.regression import Regression
from regard.tasks.task import Task
from regard.tasks.text_classification import TextClassification
from regard.training.recipes.finetuning.config import FineTuningConfig
from regard.training.recipes.finetuning.model_factory import DistillationObjective, StudentFactory
from regard.training.recipes.finetuning.report import FineTuningReport
from regard.training.recipes.finetuning.run import distill
from tests.training.recipes.finetuning.conftest import SMALL


@pytest.fixture
def teacher(tune: Callable[..., FineTuningReport], tmp_path: Path) -> Path:
    tune(tmp_path / "teacher", "training.num_epochs=2")
    return tmp_path / "teacher"


def test_a_student_has_half_of_the_layers(teacher: Path) -> None:
    solved = load_fine_tuned(teacher)
    student = StudentFactory(solved, layers=1, length=0)
    model = student.new_model(0)
    assert student.length == 32 and model.encoder.config.num_hidden_layers == len(model.encoder.encoder.layers) == 1  # type: ignore[union-attr]
    mine, whole = dict(model.named_parameters()), dict(solved.model.named_parameters())
    assert mine.keys() < whole.keys()
    assert all(torch.equal(parameter, whole[name]) for name, parameter in mine.items())
    for layers in (0, 2):
        with pytest.raises(InputError, match="1 to 1"):
            StudentFactory(solved, layers=layers, length=0)


def test_a_model_equal_to_its_teacher_has_no_soft_loss(teacher: Path) -> None:
    solved = load_fine_tuned(teacher)
    items = solved.task.preprocess(
        [TextExample("the film is good", label="pos"), TextExample("so dull", label="neg")], solved.input_builder
    )
    losses = DistillationObjective(solved.model, solved.task, solved.model).eval()(solved.model.collate(items), items)
    assert abs(losses["soft"].item()) < 1e-6 and abs(losses["hidden"].item()) < 1e-6
    assert losses["loss"].item() == pytest.approx(losses["labels"].item(), abs=1e-5)
    assert not DistillationObjective(solved.model, solved.task, solved.model).state_dict().keys() - {
        f"model.{name}" for name in solved.model.state_dict()
    }


def test_soft_losses_match_their_definition() -> None:
    torch.manual_seed(0)
    logits, teacher_logits = torch.randn(2, 3), torch.randn(2, 3)
    expected = F.softmax(teacher_logits / 2, -1) * (
        F.log_softmax(teacher_logits / 2, -1) - F.log_softmax(logits / 2, -1)
    )
    found = TextClassification(["a", "b", "c"]).distillation_loss(logits, teacher_logits, [], 2.0)
    assert found.item() == pytest.approx(4 * expected.sum(-1).mean().item(), abs=1e-6)
    several = TextClassification(["a", "b", "c"], multi_label=True)
    assert several.distillation_loss(teacher_logits, teacher_logits, [], 2.0) < several.distillation_loss(
        logits, teacher_logits, [], 2.0
    )
    assert Regression(0.0, 2.0).distillation_loss(torch.ones(3, 1), torch.zeros(3, 1), [], 2.0).item() == 0.25


@pytest.mark.parametrize(
    ("task", "example"),
    [
        (MultipleChoice(), ChoiceExample("the film", ("was good", "was so long and dull", "no"), 0)),
        (QuestionAnswering(), QuestionExample("1", "how was it?", "the film was good")),
    ],
)
def test_endings_and_tokens_are_compared_within_their_row(
    task: Task[object], example: object, tiny_bert_folder: Path
) -> None:
    import regard

    encoder, tokenizer = regard.load(tiny_bert_folder)
    assert tokenizer is not None
    tuned = EncoderWithHead.from_encoder(encoder, task)
    items = task.preprocess([example, example], FineTunedModel(task, tuned, tokenizer, 32).input_builder)
    with torch.no_grad():
        logits = tuned.eval()(tuned.collate(items))
    assert task.distillation_loss(logits, logits, items, 2.0).item() == pytest.approx(0, abs=1e-6)
    moved = logits + 7  # a constant offset does not change the probabilities
    assert task.distillation_loss(moved, logits, items, 2.0).item() == pytest.approx(0, abs=1e-5)
    other = logits + torch.arange(len(logits))[:, None]
    assert task.distillation_loss(other, logits, items, 2.0).item() > 0.01


def test_a_student_is_trained_and_saved(teacher: Path, files: Path, tmp_path: Path) -> None:
    events = distill(
        teacher,
        str(files / "train.tsv"),
        str(files / "dev.tsv"),
        layers=1,
        output=tmp_path / "student",
        config=FineTuningConfig.load(overrides=list(SMALL)),
        device="cpu",
    )
    report = drain(events)
    assert report.task == "classify" and report.model == f"{teacher}, 1 of 2 layers"
    student = load_fine_tuned(tmp_path / "student")
    assert student.model.encoder.config.num_hidden_layers == 1 and student.task.labels == ("neg", "pos")
