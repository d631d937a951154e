"""The comparison of attention scores: its tasks, its configuration and the results of each run."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
import torch

from regard.errors import InputError
from regard.lessons import reverse
from regard.lessons.reverse import Accuracy, ReverseEpoch
from regard.lessons.reverse_comparison import (
    ReverseConfig,
    ReverseRun,
    ReverseTask,
    collect_runs,
    default_lengths,
    plan_tasks,
    reverse_config,
    train_task,
)

SMALL = ReverseConfig(steps=3, features=5, units=6, train_size=60, test_size=12, epochs=2)


def test_the_defaults_are_the_decks() -> None:
    config = reverse_config()
    assert (config.steps, config.features, config.train_size, config.test_size) == (4, 10, 2000, 200)
    assert (config.units, config.batch_size, config.learning_rate, config.max_grad_norm) == (16, 10, 1e-3, 0)


def test_longer_sequences_have_other_defaults_and_explicit_options_win() -> None:
    config = reverse_config(steps=20, features=16)
    assert (config.units, config.train_size, config.max_grad_norm) == (64, 20_000, 1.0)
    given = reverse_config(
        steps=20, units=3, train_size=4, test_size=5, batch_size=6, learning_rate=0.7, max_grad_norm=0, epochs=8, seed=9
    )
    assert given == ReverseConfig(20, 10, 3, 4, 5, 6, 0.7, 0, 8, config.target_accuracy, 9)


def test_the_decks_exercise_changes_two_variables_only() -> None:
    config = reverse_config(steps=20, features=16, as_in_deck=True)
    assert config == replace(ReverseConfig(), steps=20, features=16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"features": -2}, "features must be at least 1, not -2"),
        ({"units": 0}, "units must be at least 1, not 0"),
        ({"train_size": 0}, "train size must be at least 1, not 0"),
        ({"test_size": 0}, "test size must be at least 1, not 0"),
        ({"batch_size": 0}, "batch size must be at least 1, not 0"),
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"learning_rate": 0.0}, "learning rate must be a number above 0, not 0.0"),
        ({"learning_rate": float("nan")}, "learning rate must be a number above 0, not nan"),
        ({"max_grad_norm": -1.0}, "max_grad_norm must be 0 .* not -1.0"),
        (
            {"train_size": 9801},
            r"only 10\^4 = 10,000 different sequences of 4 steps and 10 features, not the 9,801 \+ 200",
        ),
        ({"features": 1}, r"only 1\^4 = 1 different"),
    ],
)
def test_invalid_configurations_raise(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        reverse_config(**options)  # type: ignore[arg-type]


def test_all_possible_sequences_may_be_used() -> None:
    assert reverse_config(train_size=9800).train_size == 9800


def test_all_scores_recipes_and_the_baseline_share_one_configuration() -> None:
    tasks = plan_tasks(SMALL, [])
    assert {task.config for task in tasks} == {SMALL}
    assert [(task.score, task.recipe) for task in tasks if task.score != "none"] == [
        (score, recipe) for recipe in ("luong", "deck") for score in ("dot", "general", "additive")
    ]
    assert [task.score for task in tasks].count("none") == 1
    assert [task.name for task in tasks][:2] == ["no attention", "dot, luong"]


def test_lengths_differ_only_in_the_steps() -> None:
    others = plan_tasks(SMALL, [5, 3, 4, 5])[7:]
    assert [(task.config.steps, task.score) for task in others] == [(4, "none"), (4, "dot"), (5, "none"), (5, "dot")]
    assert {replace(task.config, steps=3) for task in others} == {SMALL}


def test_default_lengths() -> None:
    assert default_lengths(reverse_config()) == [4, 8, 12]
    assert default_lengths(reverse_config(steps=20, features=16)) == [5, 10, 15, 20]
    # 2^5 = 32 and 2^10 = 1,024 are too few for 21,000.
    assert default_lengths(reverse_config(steps=20, features=2)) == [15, 20]


def test_a_length_with_too_few_sequences_raises() -> None:
    with pytest.raises(InputError, match=r"only 10\^2 = 100 different sequences of 2 steps"):
        plan_tasks(reverse_config(), [2])


@pytest.fixture(scope="module")
def runs() -> list[ReverseRun]:
    return [train_task(task) for task in plan_tasks(SMALL, [4])]


def test_a_run_equals_its_steps_run_separately(runs: list[ReverseRun]) -> None:
    data = reverse.create_dataset(60, 12, 3, 5)
    model = reverse.new_model(data, score="general", recipe="deck", units=6)
    *_, last = reverse.train_reverse(model, data, epochs=2)
    evaluation = reverse.evaluate(model, data)
    (run,) = [run for run in runs if (run.task.score, run.task.recipe) == ("general", "deck")]
    assert (run.epochs, run.train, run.test) == (2, last.train, evaluation.test)
    assert run.alignment_accuracy == evaluation.alignment_accuracy
    assert run.answers == evaluation.answers.tolist()
    assert run.inputs[0] == reverse.one_hot_decode(data.X_test[0])
    assert evaluation.attention is not None
    assert run.matrix == evaluation.attention[0].tolist()
    assert run.mean_matrix is not None
    torch.testing.assert_close(torch.tensor(run.mean_matrix), evaluation.attention.mean(0))


def test_the_mean_of_the_accuracies_by_position_is_the_accuracy(runs: list[ReverseRun]) -> None:
    for run in runs:
        assert len(run.accuracy_by_position) == run.task.config.steps
        assert sum(run.accuracy_by_position) / len(run.accuracy_by_position) == pytest.approx(run.test.token_accuracy)


def test_a_run_can_be_written_as_json(runs: list[ReverseRun]) -> None:
    for run in runs:
        assert json.loads(json.dumps(asdict(run)))["epochs"] == 2
        assert (run.matrix is None) == (run.mean_matrix is None) == (run.task.score == "none")


def test_runs_are_grouped_by_length(runs: list[ReverseRun]) -> None:
    comparison = collect_runs(runs)
    assert comparison.config == SMALL
    assert comparison.runs == runs[:7]
    assert comparison.lengths == [(3, runs[0], runs[1]), (4, runs[7], runs[8])]


def test_the_best_run_has_attention(runs: list[ReverseRun]) -> None:
    def scored(run: ReverseRun, token: float, aligned: float | None) -> ReverseRun:
        return replace(run, test=Accuracy(token, 0), alignment_accuracy=aligned)

    given = [scored(runs[0], 100, None), *(scored(run, 90, 50) for run in runs[1:7])]
    given[3], given[5] = scored(runs[3], 95, 60), scored(runs[5], 95, 70)
    assert collect_runs(given).best == given[5]


def test_training_ends_at_the_target_accuracy() -> None:
    epochs: list[ReverseEpoch] = []
    task = ReverseTask("dot", "luong", replace(SMALL, epochs=40, learning_rate=1e-2, target_accuracy=40.0))
    run = train_task(task, epochs.append)
    accuracies = [epoch.train.token_accuracy for epoch in epochs]
    assert len(epochs) == run.epochs < 40
    assert max([0.0, *accuracies[:-1]]) < 40 <= accuracies[-1]


def test_max_grad_norm_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[object] = []
    plain = reverse.train_reverse

    def spy(*arguments: object, **options: object) -> object:
        norms.append(options["max_grad_norm"])
        return plain(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(reverse, "train_reverse", spy)
    for clip in (0.0, 0.5):
        train_task(ReverseTask("none", "luong", replace(SMALL, max_grad_norm=clip, epochs=1)))
    assert norms == [None, 0.5]
