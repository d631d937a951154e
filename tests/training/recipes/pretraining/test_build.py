"""From settings to a model, an objective and micro-batches; starting from pretrained models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.device import autocast_dtype
from regard.errors import InputError
from regard.events import drain
from regard.models import T5, Bert, Elmo, Gpt
from regard.text import Tokenizer
from regard.training.recipes.pretraining.config import PretrainingConfig
from regard.training.recipes.pretraining.corpus import open_dataset, prepare
from regard.training.recipes.pretraining.micro_batches import MicroBatches
from regard.training.recipes.pretraining.objectives import (
    BidirectionalLanguageModeling,
    CausalLanguageModeling,
    MaskedLanguageModeling,
    PretrainingDataset,
    PretrainingObjective,
    SpanDenoising,
    objective_class,
)
from regard.training.recipes.pretraining.recipe import new_model, pretrained_model
from regard.training.recipes.pretraining.row_sampler import FOLLOWS, OTHER
from tests.training.recipes.pretraining.runs import config

CPU = torch.device("cpu")


def objective_of(config: PretrainingConfig, model: Any, tokenizer: Tokenizer) -> PretrainingObjective:
    return objective_class(config).from_config(config, model, tokenizer, CPU)


def micro_batches(config: PretrainingConfig, dataset: PretrainingDataset) -> MicroBatches:
    return objective_class(config).micro_batches(config, dataset, 256)


@pytest.fixture
def dataset(corpus: Path) -> PretrainingDataset:
    return open_dataset(config(), [str(corpus)], Path("nowhere"), held_out=False)


@pytest.fixture
def tokenizer(dataset: PretrainingDataset) -> Tokenizer:
    return dataset.tokenizer


def test_a_bert(tokenizer: Tokenizer) -> None:
    model = new_model(config(model_dropout=0.2, model_attention_dropout=0.3, model_activation="relu"), tokenizer)
    assert isinstance(model, Bert)
    found = model.config
    assert (
        found.hidden_size,
        found.num_hidden_layers,
        found.num_attention_heads,
        found.intermediate_size,
        found.max_position_embeddings,
    ) == (32, 2, 2, 64, 32)
    assert (found.dropout, found.attention_dropout, found.hidden_act) == (0.2, 0.3, "relu")
    assert (found.vocab_size, found.pad_token_id) == (tokenizer.size, tokenizer.pad_token_id)
    assert model.mlm_head is not None and model.pooler is not None and model.nsp_head is not None


def test_single_texts_need_no_heads_for_pairs(tokenizer: Tokenizer) -> None:
    model = new_model(config(objective_sentence_pairs="none"), tokenizer)
    assert isinstance(model, Bert)
    assert model.mlm_head is not None and model.pooler is None and model.nsp_head is None


def test_a_gpt(tokenizer: Tokenizer) -> None:
    model = new_model(config("gpt", model_num_hidden_layers=3), tokenizer)
    assert isinstance(model, Gpt)
    found = model.config
    assert (found.family, found.num_hidden_layers, found.vocab_size, found.hidden_act) == (
        "gpt2",
        3,
        tokenizer.size,
        "gelu-tanh",
    )
    assert (found.bos_token_id, found.eos_token_id) == (tokenizer.bos_token_id, tokenizer.eos_token_id)


@pytest.fixture(scope="module")
def with_sentinels(source: Path, tmp_path_factory: pytest.TempPathFactory) -> PretrainingDataset:
    """The dataset of a T5."""
    output = tmp_path_factory.mktemp("sentinels")
    drain(prepare(config("t5"), [str(source)], output))
    return open_dataset(config("t5"), [str(source)], output, held_out=False)


def test_a_t5(with_sentinels: PretrainingDataset) -> None:
    tokenizer = with_sentinels.tokenizer
    model = new_model(config("t5", model_num_hidden_layers=3), tokenizer)
    assert isinstance(model, T5)
    found = model.config
    assert (
        found.num_hidden_layers,
        found.num_decoder_layers,
        found.num_attention_heads,
        found.head_dim,
        found.intermediate_size,
    ) == (3, 3, 2, 16, 64)
    assert (found.pad_token_id, found.decoder_start_token_id, found.eos_token_id) == (
        tokenizer.pad_token_id,
        tokenizer.pad_token_id,
        tokenizer.eos_token_id,
    )
    assert (found.vocab_size, found.hidden_act, found.scale_decoder_outputs, model.output) == (400, "relu", True, None)


def test_micro_batches_of_a_t5_fill_its_rows(with_sentinels: PretrainingDataset) -> None:
    selected_dtype = config("t5", objective_mlm_probability=0.3, objective_mean_noise_span_length=2.0)
    objective = objective_class(selected_dtype).from_config(
        selected_dtype, new_model(selected_dtype, with_sentinels.tokenizer), with_sentinels.tokenizer, CPU
    )
    assert isinstance(objective, SpanDenoising)
    batch = micro_batches(selected_dtype, with_sentinels).micro_batch(0, 0)
    inputs = objective.prepare(batch, torch.Generator().manual_seed(0))
    assert inputs["ids"].shape == (8, 32) and batch.ids.shape == (8, 36)
    assert inputs["decoder_ids"].shape == inputs["targets"].shape == (8, 11 + 6 + 2)
    assert {*inputs["decoder_ids"][:, 0].tolist()} == {with_sentinels.tokenizer.pad_token_id}


def test_an_elmo(tokenizer: Tokenizer, dataset: PretrainingDataset) -> None:
    model = new_model(config("elmo"), tokenizer)
    assert isinstance(model, Elmo) and model.output is not None
    assert (model.config.hidden_size, model.config.cell_size, model.config.num_characters) == (32, 64, 0)
    assert isinstance(
        objective_of(config("elmo"), model, tokenizer),
        BidirectionalLanguageModeling,
    )
    batch = micro_batches(config("elmo"), dataset).micro_batch(0, 0)
    assert batch.ids.shape == (8, 32) and {*batch.ids[:, 0].tolist()} == {tokenizer.cls_token_id}


@pytest.mark.parametrize("family", ["t5", "elmo"])
def test_other_families_start_from_pretrained_weights(
    family: Any, with_sentinels: PretrainingDataset, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    words = with_sentinels.tokenizer if family == "t5" else tokenizer
    before = new_model(config(family), words)
    regard.save(before, tmp_path, words)
    model = pretrained_model(config(family, model_dropout=0.4), words, str(tmp_path))
    assert model.config.dropout == 0.4 and type(model) is type(before)
    assert all(torch.equal(tensor, before.state_dict()[name]) for name, tensor in model.state_dict().items())
    with pytest.raises(InputError, match="num_hidden_layers was 2 and is 1"):
        pretrained_model(config(family, model_num_hidden_layers=1), words, str(tmp_path))
    with pytest.raises(InputError, match="is not a bert; start from a model of that family"):
        pretrained_model(config(), words, str(tmp_path))


@pytest.fixture
def finished(tokenizer: Tokenizer, tmp_path: Path) -> str:
    """The folder of a model of the default shape with all heads."""
    model = new_model(config(), tokenizer)
    regard.save(model, tmp_path / "finished", tokenizer)
    return str(tmp_path / "finished")


@pytest.mark.parametrize("pairs", ["next", "none"])
def test_a_run_starts_from_pretrained_weights(pairs: str, finished: str, tokenizer: Tokenizer) -> None:
    torch.manual_seed(5)
    model = pretrained_model(config(objective_sentence_pairs=pairs, model_dropout=0.4), tokenizer, finished)
    before, _ = regard.load(finished)
    weights = before.state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, weights[name]), name
    assert isinstance(model, Bert) and model.config.dropout == 0.4  # the current setting
    assert (model.pooler is None) == (pairs == "none")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_hidden_size": 64}, "another shape than .model.: hidden_size was 32 and is 64"),
        ({"model_num_hidden_layers": 1}, "num_hidden_layers was 2 and is 1"),
        ({"model_num_attention_heads": 4}, "heads was 2 and is 4"),  # the weights have the same shapes
        ({"model_activation": "relu"}, "hidden_act was 'gelu' and is 'relu'"),
        ({"model_max_position_embeddings": 64}, "max_position_embeddings was 32 and is 64"),
    ],
)
def test_a_pretrained_model_of_another_shape_is_refused(
    changed: dict[str, object], message: str, finished: str, tokenizer: Tokenizer
) -> None:
    with pytest.raises(InputError, match=message):
        pretrained_model(config(**changed), tokenizer, finished)


def test_a_model_of_another_family_is_refused(finished: str, tokenizer: Tokenizer, tiny_bert_folder: Path) -> None:
    with pytest.raises(InputError, match="is not a gpt; start from a model of that family"):
        pretrained_model(config("gpt"), tokenizer, finished)
    with pytest.raises(InputError, match=r"another vocabulary than the corpus; set vocabulary\.path"):
        pretrained_model(config(), tokenizer, str(tiny_bert_folder))


def test_a_pretrained_model_without_the_heads_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    regard.save(new_model(config(objective_sentence_pairs="none"), tokenizer), tmp_path, tokenizer)
    with pytest.raises(InputError, match="lacks heads that this run trains: nsp_head, pooler"):
        pretrained_model(config(), tokenizer, str(tmp_path))


def test_a_pretrained_model_keeps_the_rest_of_its_configuration(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = new_model(config(), tokenizer)
    assert isinstance(model, Bert)
    regard.save(Bert(type(model.config)(**{**vars(model.config), "layer_norm_eps": 1e-5})), tmp_path, tokenizer)
    assert pretrained_model(config(), tokenizer, str(tmp_path)).config.layer_norm_eps == 1e-5


def test_objectives_follow_the_settings(tokenizer: Tokenizer) -> None:
    selected_dtype = config(
        objective_mlm_probability=0.4,
        objective_whole_word_mask="true",
        objective_replacement_probabilities=[1.0, 0.0, 0.0],
    )
    objective = objective_of(selected_dtype, new_model(selected_dtype, tokenizer), tokenizer)
    assert isinstance(objective, MaskedLanguageModeling)
    assert (objective.length, objective.masking.rate, objective.masking.replace) == (32, 0.4, (1.0, 0.0, 0.0))
    assert objective.masking.continues is not None
    assert isinstance(
        objective_of(config("gpt"), new_model(config("gpt"), tokenizer), tokenizer),
        CausalLanguageModeling,
    )


def test_micro_batches_of_pairs(dataset: PretrainingDataset) -> None:
    batch = micro_batches(config(), dataset).micro_batch(0, 0)
    assert batch.ids.shape == (256,) and batch.starts is not None and batch.labels is not None
    assert {FOLLOWS, OTHER} <= {*batch.labels.tolist()}
    assert batch.starts.diff().max() <= 32


def test_micro_batches_of_single_texts(dataset: PretrainingDataset) -> None:
    batch = micro_batches(config(objective_sentence_pairs="none"), dataset).micro_batch(0, 0)
    assert batch.ids.shape == (8, 32) and batch.labels is None and batch.segments is None
    assert {*batch.ids[:, 0].tolist()} == {dataset.tokenizer.cls_token_id}


def test_a_gpt_predicts_as_many_tokens_as_it_reads(dataset: PretrainingDataset) -> None:
    batch = micro_batches(config("gpt"), dataset).micro_batch(0, 0)
    assert batch.ids.shape == (8, 33)


def test_seed_and_pairs_change_the_rows(dataset: PretrainingDataset) -> None:
    def ids(**changed: Any) -> list[int]:
        return micro_batches(config(**changed), dataset).micro_batch(0, 0).ids.tolist()

    assert ids() == ids()
    assert ids() != ids(run_seed=1)
    assert ids() != ids(objective_sentence_pairs="next")


def test_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    def selected_dtype(precision: str, device: str = "cpu") -> torch.dtype | None:
        return autocast_dtype(config(run_precision=precision).run.precision, torch.device(device))

    assert (selected_dtype("auto"), selected_dtype("fp32"), selected_dtype("bf16")) == (None, None, torch.bfloat16)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert (selected_dtype("auto", "cuda"), selected_dtype("fp32", "cuda")) == (torch.bfloat16, None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    assert selected_dtype("auto", "cuda") is None
