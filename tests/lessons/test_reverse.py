"""The reversed-sequence lesson: its data, training and metrics, including errata P1, P2 and P13."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from regard.errors import InputError
from regard.lessons import reverse
from regard.lessons.reverse import (
    ReverseDataset,
    ReverseEpoch,
    ReverseEvaluation,
    count_sequences,
    create_dataset,
    evaluate,
    new_model,
    one_hot_decode,
    train_reverse,
)
from regard.models.seq2seq import Score, Seq2Seq


@pytest.fixture(scope="module")
def data() -> ReverseDataset:
    return create_dataset(200, 40, 4, 10, seed=3)


def rows(sequences: torch.Tensor) -> list[tuple[int, ...]]:
    return [tuple(one_hot_decode(sequence)) for sequence in sequences]


def test_the_example_of_the_deck() -> None:
    _, _, X_test, y_test = create_dataset(20, 5, 4, 10, held_out=[[2, 8, 1, 6]])
    assert one_hot_decode(X_test[0]) == [2, 8, 1, 6]
    assert one_hot_decode(y_test[0]) == [6, 1, 8, 2]


def test_rows_are_one_hot_and_as_long_as_there_are_features() -> None:
    """P1: the deck prints rows of 9 for 10 features, and 8 at index 7."""
    X_train, y_train, X_test, y_test = create_dataset(20, 5, 4, 10, held_out=[[2, 8, 1, 6]])
    assert X_train.shape == y_train.shape == (20, 4, 10)
    assert X_test.shape == y_test.shape == (5, 4, 10)
    assert X_test[0].tolist()[1] == [0, 0, 0, 0, 0, 0, 0, 0, 1, 0]
    for part in (X_train, y_train, X_test, y_test):
        assert set(part.unique().tolist()) == {0.0, 1.0}
        assert (part.sum(-1) == 1).all()


def test_digits_run_from_zero_to_the_number_of_features_less_one() -> None:
    """P2: "maximum number allowed-1" is inverted."""
    X_train, *_ = create_dataset(500, 5, 4, 10)
    assert {digit for row in rows(X_train) for digit in row} == set(range(10))


def test_every_y_is_its_x_reversed(data: ReverseDataset) -> None:
    for X, y in ((data.X_train, data.y_train), (data.X_test, data.y_test)):
        assert rows(y) == [row[::-1] for row in rows(X)]


def test_sequences_are_unique_and_test_sequences_are_not_in_training() -> None:
    data = create_dataset(70, 11, 4, 3, seed=1, held_out=[(2, 2, 2, 2)])  # all possible sequences: 3^4 = 81
    both = rows(data.X_train) + rows(data.X_test)
    assert set(both) == set(itertools.product(range(3), repeat=4))
    assert len(both) == 81
    assert rows(data.X_test)[0] == (2, 2, 2, 2)


def test_long_sequences_can_be_sampled() -> None:
    data = create_dataset(30, 5, 20, 16)
    assert data.X_train.shape == (30, 20, 16)


def test_the_seed_determines_the_dataset() -> None:
    first, again, other = (create_dataset(30, 10, 4, 10, seed=seed) for seed in (5, 5, 6))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert rows(first.X_train) != rows(other.X_train)


@pytest.mark.parametrize(
    ("arguments", "held_out", "message"),
    [
        ((80, 2, 4, 3), [], r"only 3\^4 = 81 different sequences .* not the 80 \+ 2"),
        ((0, 2, 4, 3), [], "train size must be at least 1, not 0"),
        ((5, 2, -1, 3), [], "steps must be at least 1, not -1"),
        ((5, 2, 4, 3), [(0, 1, 2)], r"must have 4 digits from 0 to 2, not \[0, 1, 2\]"),
        ((5, 2, 4, 3), [(0, 1, 2, 3)], r"must have 4 digits from 0 to 2, not \[0, 1, 2, 3\]"),
        ((5, 1, 1, 9), [(1,), (2,)], "2 sequences are held out for a test set of 1"),
    ],
)
def test_impossible_sizes_and_held_out_sequences_raise(
    arguments: tuple[int, int, int, int], held_out: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        create_dataset(*arguments, held_out=held_out)


def test_the_model_is_initialized_like_keras_and_keeps_the_callers_random_state(data: ReverseDataset) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    model = new_model(data, score="dot", seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    lstm = model.encoder.recurrent.layers
    assert isinstance(lstm, nn.LSTM)
    recurrent = lstm.weight_hh_l0.detach()
    torch.testing.assert_close(recurrent.T @ recurrent, torch.eye(16))
    bias = (lstm.bias_ih_l0 + lstm.bias_hh_l0).detach().view(4, 16)  # gates: input, forget, cell, output
    assert bias.mean(1).tolist() == [0, 1, 0, 0]
    assert torch.equal(model.decoder.output.bias, torch.zeros(10))


def trained(
    data: ReverseDataset, *, score: Score = "none", epochs: int = 2, seed: int = 0
) -> tuple[Seq2Seq, list[ReverseEpoch]]:
    model = new_model(data, score=score, seed=seed)
    return model, list(train_reverse(model, data, epochs=epochs, seed=seed))


def test_training_yields_every_epoch_and_the_loss_falls(data: ReverseDataset) -> None:
    threads = torch.get_num_threads()
    _, epochs = trained(data, score="dot", epochs=5)
    assert [epoch.number for epoch in epochs] == [1, 2, 3, 4, 5]
    assert {epoch.total for epoch in epochs} == {5}
    assert epochs[-1].loss < epochs[0].loss - 0.1
    assert epochs[-1].train.token_accuracy > epochs[0].train.token_accuracy
    assert epochs[-1].seconds > epochs[0].seconds > 0
    assert torch.get_num_threads() == threads


def test_the_caller_can_stop_training(data: ReverseDataset) -> None:
    model = new_model(data)
    run = train_reverse(model, data, epochs=1000)
    assert next(run).number == 1
    weights = model.decoder.output.weight.detach().clone()
    run.close()  # type: ignore[attr-defined]
    assert torch.equal(model.decoder.output.weight, weights)


def test_the_decoder_reads_its_own_output_and_not_the_target(data: ReverseDataset) -> None:
    """Free running, as in the deck: after an input of zeros, the model's own softmax is fed back."""
    model = new_model(data, seed=1)
    inputs_read: list[torch.Tensor] = []
    model.decoder.register_forward_pre_hook(lambda module, inputs: inputs_read.append(inputs[0]))
    scores = model(data.X_test[:3], steps=4)
    assert torch.equal(inputs_read[0], torch.zeros(3, 10))
    for step in range(3):
        torch.testing.assert_close(inputs_read[step + 1], scores[:, step].softmax(-1))


@pytest.mark.parametrize("score", ["none", "dot"])
def test_the_same_seed_gives_the_same_result(data: ReverseDataset, score: Score) -> None:
    torch.manual_seed(1)
    first, first_epochs = trained(data, score=score)
    torch.manual_seed(2)  # which must not matter
    again, again_epochs = trained(data, score=score)
    other, _ = trained(data, score=score, seed=1)
    assert [epoch.loss for epoch in first_epochs] == [epoch.loss for epoch in again_epochs]
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.decoder.output.weight, other.decoder.output.weight)


@pytest.mark.parametrize("score", ["dot", "general", "additive"])
def test_attention_rows_sum_to_one(data: ReverseDataset, score: Score) -> None:
    attention = evaluate(new_model(data, score=score), data).attention
    assert attention is not None
    assert attention.shape == (40, 4, 4)
    assert not attention.requires_grad
    torch.testing.assert_close(attention.sum(-1), torch.ones(40, 4))


def test_without_attention_the_evaluation_has_no_weights(data: ReverseDataset) -> None:
    evaluation = evaluate(new_model(data), data)
    assert evaluation.attention is None
    assert evaluation.alignment_accuracy is None


class KnownOutput(nn.Module):
    """A stand-in for a model that returns a known output."""

    def __init__(self, model: Seq2Seq, wrong: int) -> None:
        super().__init__()
        self.config, self.wrong = model.config, wrong

    def forward(self, source: torch.Tensor, *, steps: int) -> torch.Tensor:
        answer = source.flip(1).clone()
        answer[: self.wrong, 0] = answer[: self.wrong, 0].roll(1, dims=-1)  # one digit wrong in each of these sequences
        return answer


def test_token_accuracy_and_sequence_accuracy_differ(data: ReverseDataset) -> None:
    """P13: the deck's "accuracy" is per token; 10 sequences of 40 with one wrong digit of four are 93.75 and 75."""
    model = KnownOutput(new_model(data), wrong=10)
    evaluation = evaluate(model, data)  # type: ignore[arg-type]
    assert evaluation.test.token_accuracy == 93.75
    assert evaluation.test.sequence_accuracy == 75
    assert evaluation.train.token_accuracy == 98.75


def test_alignment_accuracy_counts_the_anti_diagonal(data: ReverseDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one-hot states and the right digit as query, every largest weight is on the anti-diagonal."""
    model = new_model(data, score="dot")
    distinct = [i for i, row in enumerate(rows(data.X_test)) if len(set(row)) == 4]
    subset = ReverseDataset(data.X_train, data.y_train, data.X_test[distinct], data.y_test[distinct])

    def attend(right: bool) -> ReverseEvaluation:
        def forward(source: torch.Tensor, *, steps: int) -> torch.Tensor:
            from regard.nn.masks import Context, Padded

            assert model.decoder.cross is not None
            for step in range(steps):
                query = source[:, steps - 1 - step if right else step]
                model.decoder.cross(query[:, None], Context(Padded(), source, Padded()))
            return source.flip(1)

        monkeypatch.setattr(model, "forward", forward)
        return evaluate(model, subset)

    assert attend(right=True).alignment_accuracy == 100
    assert attend(right=False).alignment_accuracy == 0


def test_count_sequences_is_fast_for_long_sequences() -> None:
    assert count_sequences(4, 10) == 10_000
    assert count_sequences(20, 1) == 1
    assert count_sequences(10**9, 2) == 2**64


def test_gradients_are_clipped_to_max_grad_norm(data: ReverseDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[float] = []
    plain = torch.optim.Adam.step

    def step(self: torch.optim.Adam) -> None:
        parameters = [p for group in self.param_groups for p in group["params"]]
        lengths.append(torch.cat([p.grad.flatten() for p in parameters]).norm().item())
        plain(self)

    monkeypatch.setattr(torch.optim.Adam, "step", step)
    next(train_reverse(new_model(data), data, batch_size=50, max_grad_norm=0.01))
    assert len(lengths) == 4
    assert lengths == pytest.approx([0.01] * 4, rel=1e-3)
    next(train_reverse(new_model(data), data, batch_size=50))
    assert min(lengths[4:]) > 0.011


@pytest.mark.parametrize("score", ["none", "general"])
def test_the_evaluation_batch_size_does_not_affect_the_result(
    data: ReverseDataset, score: Score, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = new_model(data, score=score, seed=1)
    together = evaluate(model, data)
    monkeypatch.setattr(reverse, "EVALUATION_BATCH", 7)
    parted = evaluate(model, data)
    assert torch.equal(together.answers, parted.answers)
    assert (together.train, together.test) == (parted.train, parted.test)
    assert together.alignment_accuracy == parted.alignment_accuracy
    if together.attention is not None and parted.attention is not None:
        torch.testing.assert_close(together.attention, parted.attention)
    assert (together.attention is None) == (parted.attention is None) == (score == "none")
