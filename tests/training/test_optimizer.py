from __future__ import annotations

import copy
import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import InputError
from regard.models import Bert, BertConfig, Gpt, GptConfig
from regard.training.optimizer import Muon, build_optimizers, orthogonalize, parameter_groups, set_learning_rate

RATE = 0.05


def tiny_bert() -> Bert:
    return Bert(
        BertConfig(
            vocab_size=40,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=8,
            dropout=0.0,
        )
    )


def give_gradients(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        values = torch.randn(parameter.shape, generator=generator)
        parameter.grad = values.to(parameter.device)


def reference(matrix: Tensor, gradients: list[Tensor], *, momentum: float, weight_decay: float) -> Tensor:
    """Muon for one matrix, written as in the paper."""
    total = torch.zeros_like(matrix)
    for gradient in gradients:
        total = momentum * total + gradient  # the scale does not matter because the result is orthogonalized
        x = gradient + momentum * total
        x = x / x.norm()
        x = x.T if x.shape[0] > x.shape[1] else x
        for _ in range(5):
            square = x @ x.T
            x = 3.4445 * x - 4.7750 * square @ x + 2.0315 * square @ square @ x
        x = x.T if matrix.shape[0] > matrix.shape[1] else x
        matrix = matrix - RATE * weight_decay * matrix - RATE * 0.2 * math.sqrt(max(matrix.shape)) * x
    return matrix


def test_matrices_decay_biases_and_norms_do_not() -> None:
    model = tiny_bert()
    model.pooler.requires_grad_(False)
    decaying, others = parameter_groups(model, weight_decay=0.3)
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.3, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decays = {names[id(parameter)] for parameter in decaying["params"]}
    rest = {names[id(parameter)] for parameter in others["params"]}
    assert "embedding.tokens.weight" in decays
    assert "encoder.layers.1.ffn.inner.weight" in decays
    assert {"mlm_head.bias", "encoder.layers.0.ffn_residual.norm.weight", "nsp_head.bias"} <= rest
    assert decays | rest == {name for name in names.values() if not name.startswith("pooler")}


def test_a_model_without_matrices_has_one_group() -> None:
    assert [group["weight_decay"] for group in parameter_groups(nn.LayerNorm(4), weight_decay=0.3)] == [0.0]


def test_adamw_equals_torch(device: torch.device) -> None:
    ours, theirs = tiny_bert().to(device), tiny_bert().to(device)
    theirs.load_state_dict(ours.state_dict())
    [optimizer] = build_optimizers(ours, name="adamw", learning_rate=RATE, betas=(0.8, 0.9), eps=1e-5, weight_decay=0.3)
    split: dict[str, list[nn.Parameter]] = {"matrices": [], "vectors": []}
    for parameter in theirs.parameters():
        split["matrices" if parameter.ndim == 2 else "vectors"].append(parameter)
    plain = torch.optim.AdamW(split["matrices"], RATE, betas=(0.8, 0.9), eps=1e-5, weight_decay=0.3, foreach=False)
    vectors = torch.optim.AdamW(split["vectors"], RATE, betas=(0.8, 0.9), eps=1e-5, weight_decay=0, foreach=False)
    assert optimizer.defaults["fused"]
    for seed in range(3):
        give_gradients(ours, seed)
        give_gradients(theirs, seed)
        for each in (optimizer, plain, vectors):
            each.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


def test_muon_updates_the_matrices_of_layers_and_adamw_the_rest() -> None:
    model = tiny_bert()
    muon, adam = build_optimizers(model, name="muon", learning_rate=RATE)
    assert isinstance(muon, Muon) and isinstance(adam, torch.optim.AdamW)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    taken = Counter(names[id(p)] for each in (muon, adam) for group in each.param_groups for p in group["params"])
    assert taken == Counter(names.values())  # each exactly once
    matrices = {names[id(p)]: group["parts"] for group in muon.param_groups for p in group["params"]}
    assert matrices == {
        f"encoder.layers.{layer}.{name}.weight": parts
        for layer in range(2)
        for name, parts in {"attention.project": 3, "attention.output": 1, "ffn.inner": 1, "ffn.outer": 1}.items()
    }


def test_muon_equals_the_reference() -> None:
    shapes = {"square": (6, 6), "wide": (4, 9), "tall": (9, 4), "second tall": (9, 4)}
    parameters = {name: nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()}
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    gradients = {name: [torch.randn(shape) for _ in range(4)] for name, shape in shapes.items()}
    muon = Muon(parameters.values(), lr=RATE, weight_decay=0.3, momentum=0.8)
    for number in range(4):
        for name, parameter in parameters.items():
            parameter.grad = gradients[name][number].clone()
        muon.step()
    for name, parameter in parameters.items():
        expected = reference(before[name], gradients[name], momentum=0.8, weight_decay=0.3)
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-3, atol=1e-4)
        assert parameter.grad is not None and torch.equal(parameter.grad, gradients[name][-1])


def test_a_fused_projection_is_orthogonalized_as_three_matrices() -> None:
    model = tiny_bert()
    model.encoder.layers[1].requires_grad_(False)
    muon, _ = build_optimizers(model, name="muon", learning_rate=RATE, weight_decay=0.3)
    weight = model.encoder.layers[0].attention.project.weight
    before, gradients = weight.detach().clone(), []
    for seed in range(3):
        give_gradients(model, seed)
        gradients.append(weight.grad.clone())
        muon.step()
    for rows in (slice(0, 16), slice(16, 32), slice(32, 48)):
        parts = [gradient[rows] for gradient in gradients]
        expected = reference(before[rows], parts, momentum=0.95, weight_decay=0.3)
        torch.testing.assert_close(weight.detach()[rows], expected, rtol=1e-3, atol=1e-4)
    assert len(muon.state) == 4  # the frozen layer has no state


def test_groups_have_their_own_learning_rates() -> None:
    slow, fast = nn.Parameter(torch.eye(4)), nn.Parameter(torch.eye(4))
    muon = Muon([{"params": [slow], "lr": RATE / 10}, {"params": [fast]}], lr=RATE)
    slow.grad = fast.grad = torch.randn(4, 4)
    muon.step()
    torch.testing.assert_close((slow - torch.eye(4)) * 10, fast - torch.eye(4), rtol=1e-3, atol=1e-5)
    assert [group["lr"] for group in muon.param_groups] == [RATE / 10, RATE]


def test_the_update_has_the_scale_of_adamw(device: torch.device) -> None:
    weight = nn.Parameter(torch.zeros(32, 128, device=device))
    muon = Muon([weight], lr=1.0)
    weight.grad = torch.randn(32, 128, device=device) * 1e-4
    muon.step()
    assert weight.detach().square().mean().sqrt().item() == pytest.approx(0.2, rel=0.25)


@pytest.mark.parametrize("shape", [(2, 8, 32), (2, 32, 8)])
def test_singular_values_are_close_to_one(shape: tuple[int, int, int], device: torch.device) -> None:
    matrices = torch.randn(shape, device=device) * torch.tensor([1e-3, 1e3], device=device)[:, None, None]
    values = torch.linalg.svdvals(orthogonalize(matrices).float())
    assert values.min() > 0.6 and values.max() < 1.3
    assert not orthogonalize(torch.zeros(shape)).any()  # no gradient, no update, and no NaN


def test_a_parameter_without_a_gradient_is_unchanged() -> None:
    moved, left = nn.Parameter(torch.eye(4)), nn.Parameter(torch.eye(4))
    muon = Muon([moved, left], lr=RATE, weight_decay=0.5)
    moved.grad = torch.randn(4, 4)
    muon.step()
    assert not torch.equal(moved, torch.eye(4)) and torch.equal(left, torch.eye(4))
    assert left not in muon.state


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_small_problem_is_learned(name: str, device: torch.device) -> None:
    """Predict the first token at the last position of a causal model."""
    config = GptConfig(
        vocab_size=8,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=4,
        dropout=0,
        attention_dropout=0,
    )
    model = Gpt(config).to(device)
    ids = torch.cartesian_prod(*(torch.arange(4, device=device) for _ in range(4)))
    optimizers = build_optimizers(model, name=name, learning_rate=0.03)
    losses = []
    for step in range(80):
        set_learning_rate(optimizers, 0.03 * (1 - step / 80))
        loss = F.cross_entropy(model.logits(model(ids)[:, -1]), ids[:, 0])
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[0] > 1.3 and losses[-1] < 0.1


def test_a_restored_optimizer_continues_identically() -> None:
    models = [tiny_bert(), tiny_bert()]
    running = [build_optimizers(model, name="muon", learning_rate=RATE) for model in models]
    for seed in range(3):
        give_gradients(models[0], seed)
        for optimizer in running[0]:
            optimizer.step()
    models[1].load_state_dict(models[0].state_dict())
    for theirs, ours in zip(running[0], running[1], strict=True):
        ours.load_state_dict(copy.deepcopy(theirs.state_dict()))  # torch does not copy tensors that already match
    assert all(set(state) == {"momentum_buffer"} for state in running[1][0].state.values())
    for model, optimizers in zip(models, running, strict=True):
        give_gradients(model, 3)
        for optimizer in optimizers:
            optimizer.step()
    for first, second in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(first, second)


def test_the_learning_rate_is_set_in_all_groups() -> None:
    optimizers = build_optimizers(tiny_bert(), name="muon", learning_rate=1.0)
    set_learning_rate(optimizers, 0.25)
    assert {group["lr"] for optimizer in optimizers for group in optimizer.param_groups} == {0.25}


def test_a_closure_is_run_with_gradients() -> None:
    weight = nn.Parameter(torch.eye(4))

    def closure() -> float:
        loss = weight.square().sum()
        loss.backward()
        return loss.item()

    assert Muon([weight], lr=RATE).step(closure) == 4.0
    assert weight.detach().square().sum() < 4.0


def test_unknown_optimizers_are_refused() -> None:
    with pytest.raises(InputError, match=r"unknown optimizer 'moun'; did you mean 'muon'\?"):
        build_optimizers(tiny_bert(), name="moun", learning_rate=RATE)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="this model has none; use adamw"):
        build_optimizers(nn.Linear(4, 4), name="muon", learning_rate=RATE)
