"""Training cost: parameter counts, torch's operation counts, and GPT-3's published figures."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import regard
from regard.errors import InputError
from regard.models import Bert, BertConfig, ElmoConfig, Gpt, GptConfig, T5Config
from regard.models.family import build, known_checkpoints
from regard.training.cost import GPT3, GPUS, ModelShape, estimate_cost, find_shape, parse_count

TOKENS = 300 * 10**9


def test_gpt_3_matches_its_published_figures() -> None:
    """175 B parameters, 300 B tokens, 3640 petaflop/s-days; 4.6 million dollars on V100s as in the lecture."""
    subject = find_shape("gpt3")
    assert subject.parameters == pytest.approx(174.6e9, rel=1e-3)
    found = estimate_cost(subject, tokens=TOKENS, gpu="v100", utilization=28 / 125, price=1.5)
    assert found.flops == pytest.approx(3.14e23, rel=2e-3)
    assert found.flops / 1e15 / 86400 == pytest.approx(3640, rel=2e-3)
    assert found.gpu_years == pytest.approx(355, rel=5e-3)
    assert found.money is not None
    assert 4.6e6 < found.money < 4.7e6


def test_gpt_3_is_counted_without_its_weights() -> None:
    config = GptConfig(**GPT3.shape)  # type: ignore[arg-type]
    counted = ModelShape.from_config("gpt3", config)
    assert (counted.parameters, counted.length) == (GPT3.parameters, 2048)


def test_operations_of_a_gpt_match_torch() -> None:
    config = GptConfig(
        vocab_size=2000,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=256,
        max_position_embeddings=64,
    )
    model, ids = Gpt(config), torch.randint(2000, (2, 64))
    with FlopCounterMode(display=False) as counter:
        model.logits(model(ids)).sum().backward()
    found = estimate_cost(ModelShape.from_config("tiny", config), tokens=128)
    # Positions, norms and biases have no matrix product; the backward pass recomputes the scores.
    assert found.flops_with_attention == pytest.approx(counter.get_total_flops(), rel=0.05)
    assert found.flops_with_attention - found.flops == 12 * 3 * 64 * 64 * 128
    assert found.flops == 6 * sum(p.numel() for p in model.parameters()) * 128


def test_hours_follow_from_flops() -> None:
    subject = find_shape("gpt2")
    for name, peak in GPUS.items():
        found = estimate_cost(subject, tokens=10**9, gpu=name, utilization=0.5)
        assert found.gpu_hours == pytest.approx(6 * 124_439_808 * 1e9 / (peak * 0.5) / 3600)
        assert found.gpu_years == pytest.approx(found.gpu_hours / 8760)
        assert (found.price, found.money) == (None, None)
    assert estimate_cost(subject, tokens=10**9, gpu="v100", utilization=0.5, price=2).money == pytest.approx(
        2 * estimate_cost(subject, tokens=10**9, gpu="v100", utilization=0.5).gpu_hours
    )


@pytest.mark.parametrize("known", known_checkpoints(), ids=lambda known: known.name)
def test_known_names_with_and_without_their_owner(known: object) -> None:
    name = known.name  # type: ignore[attr-defined]
    assert find_shape(name) == find_shape(name.rpartition("/")[2])
    assert find_shape(name).parameters == known.parameters  # type: ignore[attr-defined]


def test_rows_have_the_maximum_length_of_the_model() -> None:
    assert find_shape("bert-base-uncased").length == 512
    assert find_shape("vit-base-patch16-224").length == 1 + 14 * 14
    assert find_shape("t5-small").length == 512
    assert find_shape("gpt2", length=128).length == 128


def test_a_token_passes_one_stack_of_an_encoder_decoder() -> None:
    subject = find_shape("t5-small")
    found = estimate_cost(subject, tokens=1000)
    assert found.active_parameters == 60_506_624 // 2
    assert found.flops == 6.0 * found.active_parameters * 1000
    # Six layers with one attention, six with two; a token passes one of the two stacks. Eight heads of 64.
    assert found.flops_with_attention - found.flops == 12 * (6 + 2 * 6) / 2 * 512 * 512 * 1000
    assert isinstance(subject.config, T5Config)


def test_a_recurrent_model_has_no_attention() -> None:
    config = ElmoConfig(vocab_size=100, num_characters=0, hidden_size=8, cell_size=8, num_hidden_layers=1)
    found = estimate_cost(ModelShape.from_config("elmo", config), tokens=10)
    assert found.flops == found.flops_with_attention
    assert found.parameters == sum(p.numel() for p in build(config).parameters())


def test_a_folder_is_read_by_its_config_alone(tmp_path: Path) -> None:
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=20,
    )
    model = Bert(config)
    regard.save(model, tmp_path / "bert")
    (tmp_path / "bert" / "model.safetensors").unlink()
    subject = find_shape(str(tmp_path / "bert"))
    assert subject.parameters == sum(p.numel() for p in model.parameters())
    assert subject.length == 20
    with pytest.raises(InputError, match=r"no config\.json"):
        find_shape(str(tmp_path))


def test_unknown_names() -> None:
    with pytest.raises(InputError, match=r"'gpt4' is not a model folder.* did you mean 'gpt"):
        find_shape("gpt4")


@pytest.mark.parametrize(
    ("text", "count"),
    [("300B", TOKENS), ("1.5e9", 1_500_000_000), ("10_000", 10_000), ("2k", 2000), (" 3T ", 3 * 10**12), ("7", 7)],
)
def test_numbers_of_tokens(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "many", "B", "0", "-5", "nan", "inf", "1e30", "3 apples"])
def test_invalid_numbers_of_tokens(text: str) -> None:
    with pytest.raises(InputError, match="tokens"):
        parse_count(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": 0}, "tokens is 0"),
        ({"gpu": "v10"}, "unknown GPU 'v10'; did you mean 'v100'"),
        ({"utilization": 0.0}, "utilization is 0; expected a share"),
        ({"utilization": 1.5}, "utilization is 1.5"),
        ({"utilization": float("nan")}, "utilization is nan"),
        ({"price": -1.0}, "price is -1"),
        ({"price": float("nan")}, "price is nan"),
    ],
)
def test_invalid_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        estimate_cost(find_shape("gpt2"), **{"tokens": 10, **options})  # type: ignore[arg-type]
