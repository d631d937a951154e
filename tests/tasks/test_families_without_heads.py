"""Families without classes with task heads in transformers: they are fine-tuned, saved and loaded all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, load_fine_tuned, save_fine_tuned
from regard.tasks.text_classification import TextClassification
from regard.tasks.token_classification import TokenClassification
from regard.text import Tokenizer
from tests.parity.published import tokenizer_of
from tests.parity.references import pair_of


@pytest.mark.parametrize("family", ["embeddinggemma", "granite"])
@pytest.mark.parametrize("task", [TextClassification(["no", "yes"]), TokenClassification(["O", "B-PER", "I-PER"])])
def test_a_head_is_saved_and_loaded(
    family: str, task: TextClassification | TokenClassification, tmp_path: Path
) -> None:
    encoder = pair_of(family, tmp_path / "model").ours
    tokenizer_of("bert", tmp_path).save_pretrained(tmp_path / "tokenizer")
    tokenizer = Tokenizer.open(tmp_path / "tokenizer")
    model = FineTunedModel(task, EncoderWithHead.from_encoder(encoder, task), tokenizer, 20)
    save_fine_tuned(model, tmp_path / "tuned")
    again = load_fine_tuned(tmp_path / "tuned").model
    expected = model.model.state_dict()
    assert again.state_dict().keys() == expected.keys()
    assert all(tensor.equal(expected[name]) for name, tensor in again.state_dict().items())
