"""The reversal lesson: read digits and write them backwards, with or without attention.

data = create_dataset(2000, 200, 4, 10)
model = new_model(data, score="dot")
for epoch in train_reverse(model, data):  # stop whenever you like
    print(epoch.number, epoch.loss)
print(evaluate(model, data).test.token_accuracy)
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.cancellation import check_cancelled
from regard.errors import InputError
from regard.models.seq2seq import Recipe, Score, Seq2Seq, Seq2SeqConfig
from regard.nn.recording import record

# The deck's configuration. It does not give the epochs: after 24 the model without attention is as good.
TRAIN_SIZE, TEST_SIZE, TIMESTEPS, FEATURES = 2000, 200, 4, 10
UNITS, BATCH_SIZE, LEARNING_RATE = 16, 10, 1e-3
EPOCHS = 24
EVALUATION_BATCH = 500  # sequences; a recording keeps the keys of every step


class ReverseDataset(NamedTuple):
    """One-hot sequences (N, T, n_features); each y is its X backwards."""

    X_train: Tensor
    y_train: Tensor
    X_test: Tensor
    y_test: Tensor


@dataclass(frozen=True)
class Accuracy:
    """Percent of correct digits, and percent of entirely correct sequences. The deck's "accuracy" is the first."""

    token_accuracy: float
    sequence_accuracy: float


@dataclass(frozen=True)
class ReverseEpoch:
    """Progress after an epoch: its mean loss, the accuracy on the training set, the seconds so far."""

    number: int
    total: int
    loss: float
    train: Accuracy
    seconds: float


@dataclass(frozen=True, eq=False)
class ReverseEvaluation:
    """Accuracies, and the digits `answers` (N, T) for the test set.

    `attention` (N, T, S) are the weights of each output digit, and `alignment_accuracy` the percentage of steps whose
    largest weight is on the digit to write, the anti-diagonal; both are None without attention.
    """

    train: Accuracy
    test: Accuracy
    answers: Tensor
    attention: Tensor | None
    alignment_accuracy: float | None


def create_dataset(
    train_size: int,
    test_size: int,
    n_timesteps_in: int,
    n_features: int,
    *,
    seed: int = 0,
    held_out: Sequence[Sequence[int]] = (),
) -> ReverseDataset:
    """Sample distinct sequences of digits 0 to n_features - 1, so that no test sequence is in the training set.

    The test set starts with the sequences of `held_out`.
    """
    check_sizes(train_size=train_size, test_size=test_size, steps=n_timesteps_in, features=n_features)
    for digits in held_out:
        if len(digits) != n_timesteps_in or not all(0 <= digit < n_features for digit in digits):
            raise InputError(
                f"a held-out sequence must have {n_timesteps_in} digits from 0 to {n_features - 1}, not {list(digits)}"
            )
    sampled = dict.fromkeys(map(tuple, held_out))  # a set that keeps the order
    if len(sampled) > test_size:
        raise InputError(f"{len(sampled)} sequences are held out for a test set of {test_size}; raise test_size")
    rng = random.Random(seed)
    while len(sampled) < train_size + test_size:
        sampled[tuple(rng.choices(range(n_features), k=n_timesteps_in))] = None
    X = F.one_hot(torch.tensor(list(sampled)), n_features).float()
    y = X.flip(1)
    return ReverseDataset(X[test_size:], y[test_size:], X[:test_size], y[:test_size])


def check_sizes(*, train_size: int, test_size: int, steps: int, features: int, **others: int) -> None:
    """InputError unless all sizes are at least 1 and there are enough distinct sequences."""
    sizes = {"steps": steps, "features": features, "train_size": train_size, "test_size": test_size, **others}
    for name, size in sizes.items():
        if size < 1:
            raise InputError(f"{name.replace('_', ' ')} must be at least 1, not {size}")
    possible = count_sequences(steps, features)
    if train_size + test_size > possible:
        raise InputError(
            f"there are only {features}^{steps} = {possible:,} different sequences of {steps} steps and {features} "
            f"features, not the {train_size:,} + {test_size:,} of train size and test size; lower these, or raise "
            "steps or features"
        )


def count_sequences(n_timesteps_in: int, n_features: int) -> int:
    """The number of distinct sequences, counted for at most 64 digits."""
    return int(n_features ** min(n_timesteps_in, 64))


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute on one thread: a model this small is slower on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_hot_decode(encoded: Tensor) -> list[int]:
    """The digits of one sequence (T, n_features)."""
    digits: list[int] = encoded.argmax(-1).tolist()
    return digits


def new_model(
    data: ReverseDataset, *, score: Score = "none", recipe: Recipe = "luong", units: int = UNITS, seed: int = 0
) -> Seq2Seq:
    """An LSTM encoder-decoder for the data, initialized like Keras, which the deck uses."""
    features = data.X_train.shape[-1]
    config = Seq2SeqConfig(source_size=features, target_size=features, hidden_size=units, score=score, recipe=recipe)
    with torch.random.fork_rng(devices=[]):  # keeps the caller's random state
        model = Seq2Seq(config)
    _initialize_like_keras(model, torch.Generator().manual_seed(seed))
    return model


def train_reverse(
    model: Seq2Seq,
    data: ReverseDataset,
    *,
    epochs: int | None = None,
    batch_size: int = BATCH_SIZE,
    learning_rate: float = LEARNING_RATE,
    max_grad_norm: float | None = None,
    seed: int = 0,
) -> Iterator[ReverseEpoch]:
    """Train like the deck and yield after every epoch: Adam, cross-entropy, and a decoder that reads its own output.

    Its first input is zeros, each later one its own softmax output. The same seed gives the same weights.
    """
    total = EPOCHS if epochs is None else epochs
    order = torch.Generator().manual_seed(seed)
    targets = data.y_train.argmax(-1)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, eps=1e-7, fused=True)  # Keras' epsilon
    seconds = 0.0
    for number in range(1, total + 1):
        begin, losses = time.perf_counter(), []
        model.train()
        with single_thread():
            for batch in torch.split(torch.randperm(len(targets), generator=order), batch_size):
                check_cancelled()
                scores = model(data.X_train[batch], steps=targets.shape[1])
                loss = F.cross_entropy(scores.flatten(0, 1), targets[batch].flatten())
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                if max_grad_norm is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
                optimizer.step()
                losses.append(loss.detach())
            train = _accuracy(_answers(model, data.X_train), data.y_train)
        seconds += time.perf_counter() - begin
        yield ReverseEpoch(number, total, torch.stack(losses).mean().item(), train, seconds)


@torch.no_grad()
def evaluate(model: Seq2Seq, data: ReverseDataset) -> ReverseEvaluation:
    """Evaluate the model on both sets, and record its attention on the test set."""
    with single_thread():
        train = _accuracy(_answers(model, data.X_train), data.y_train)
        answers_parts, attention_parts = [], []
        for batch in torch.split(data.X_test, EVALUATION_BATCH):
            with record(model) as tape:
                answers_parts.append(_answers(model, batch))
            if model.config.score != "none":
                attention_parts.append(tape.attention("cross")[0][:, 0])
    answers, attention = torch.cat(answers_parts), torch.cat(attention_parts) if attention_parts else None
    alignment = None
    if attention is not None:
        anti_diagonal = torch.arange(attention.shape[2] - 1, -1, -1)
        alignment = _percent(attention.argmax(-1) == anti_diagonal)
    return ReverseEvaluation(train, _accuracy(answers, data.y_test), answers, attention, alignment)


@torch.no_grad()
def _answers(model: Seq2Seq, sequences: Tensor) -> Tensor:
    """The digits (N, T) that the model writes."""
    model.eval()
    pieces = [model(batch, steps=batch.shape[1]).argmax(-1) for batch in torch.split(sequences, EVALUATION_BATCH)]
    return torch.cat(pieces)


def _accuracy(answers: Tensor, targets: Tensor) -> Accuracy:
    right = answers == targets.argmax(-1)
    return Accuracy(_percent(right), _percent(right.all(-1)))


def _percent(right: Tensor) -> float:
    return 100 * right.sum().item() / right.numel()


def _initialize_like_keras(model: nn.Module, generator: torch.Generator) -> None:
    """Glorot-uniform input weights, orthogonal recurrent weights, zero biases except 1 for the forget gate."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LSTM | nn.LSTMCell):
            for name, parameter in module.named_parameters():
                if name.startswith("weight_ih"):
                    nn.init.xavier_uniform_(parameter, generator=generator)
                elif name.startswith("weight_hh"):
                    nn.init.orthogonal_(parameter, generator=generator)
                else:
                    nn.init.zeros_(parameter)
                    if name.startswith("bias_ih"):  # torch has two biases and adds them; its gates are i, f, g, o
                        nn.init.ones_(parameter.detach().chunk(4)[1])
