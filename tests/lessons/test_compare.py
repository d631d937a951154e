"""The comparison of attentions: which models there are, what they share, and what is kept of each."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
import torch

from regard.errors import InputError
from regard.lessons import reverse
from regard.lessons.compare import Run, Setting, Task, choose_lengths, choose_setting, gather, plan, train_task
from regard.lessons.reverse import Accuracy, Epoch

SMALL = Setting(steps=3, features=5, units=6, train_size=60, test_size=12, epochs=2)


def test_the_defaults_are_the_decks() -> None:
    setting = choose_setting()
    assert (setting.steps, setting.features, setting.train_size, setting.test_size) == (4, 10, 2000, 200)
    assert (setting.units, setting.batch_size, setting.learning_rate, setting.clip) == (16, 10, 1e-3, 0)


def test_longer_sequences_get_a_setting_that_can_learn_them_and_what_is_said_holds() -> None:
    setting = choose_setting(steps=20, features=16)
    assert (setting.units, setting.train_size, setting.clip) == (64, 20_000, 1.0)
    said = choose_setting(
        steps=20, units=3, train_size=4, test_size=5, batch_size=6, learning_rate=0.7, clip=0, epochs=8, seed=9
    )
    assert said == Setting(20, 10, 3, 4, 5, 6, 0.7, 0, 8, setting.enough, 9)


@pytest.mark.parametrize(
    ("said", "message"),
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
        ({"clip": -1.0}, "clip must be 0 .* not -1.0"),
        (
            {"train_size": 9801},
            r"only 10\^4 = 10,000 different sequences of 4 steps and 10 features, not the 9,801 \+ 200",
        ),
        ({"features": 1}, r"only 1\^4 = 1 different"),
    ],
)
def test_what_cannot_be_done_is_refused(said: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_setting(**said)  # type: ignore[arg-type]


def test_every_sequence_there_is_may_be_used() -> None:
    assert choose_setting(train_size=9800).train_size == 9800


def test_every_score_in_both_recipes_and_no_attention_once_share_one_setting() -> None:
    tasks = plan(SMALL, [])
    assert {task.setting for task in tasks} == {SMALL}
    assert [(task.score, task.recipe) for task in tasks if task.score != "none"] == [
        (score, recipe) for recipe in ("luong", "deck") for score in ("dot", "general", "additive")
    ]
    assert [task.score for task in tasks].count("none") == 1
    assert [task.name for task in tasks][:2] == ["no attention", "dot, luong"]


def test_lengths_differ_in_nothing_but_the_steps() -> None:
    others = plan(SMALL, [5, 3, 4, 5])[7:]
    assert [(task.setting.steps, task.score) for task in others] == [(4, "none"), (4, "dot"), (5, "none"), (5, "dot")]
    assert {replace(task.setting, steps=3) for task in others} == {SMALL}


def test_lengths_that_are_not_said() -> None:
    assert choose_lengths(choose_setting()) == [4, 8, 12]
    assert choose_lengths(choose_setting(steps=20, features=16)) == [5, 10, 15, 20]
    # 2^5 = 32 and 2^10 = 1,024 are too few for 21,000.
    assert choose_lengths(choose_setting(steps=20, features=2)) == [15, 20]


def test_a_length_with_too_few_sequences_is_refused() -> None:
    with pytest.raises(InputError, match=r"only 10\^2 = 100 different sequences of 2 steps"):
        plan(choose_setting(), [2])


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [train_task(task) for task in plan(SMALL, [4])]


def test_a_run_is_what_the_lesson_gives(runs: list[Run]) -> None:
    data = reverse.create_dataset(60, 12, 3, 5)
    model = reverse.new_model(data, score="general", recipe="deck", units=6)
    *_, last = reverse.train_reverse(model, data, epochs=2)
    measures = reverse.measure(model, data)
    (run,) = [run for run in runs if (run.task.score, run.task.recipe) == ("general", "deck")]
    assert (run.epochs, run.train, run.test) == (2, last.train, measures.test)
    assert run.alignment_accuracy == measures.alignment_accuracy
    assert run.written == measures.answers[0].tolist()
    assert run.read == reverse.one_hot_decode(data.X_test[0])
    assert measures.attention is not None
    assert run.matrix == measures.attention[0].tolist()
    assert run.mean_matrix is not None
    torch.testing.assert_close(torch.tensor(run.mean_matrix), measures.attention.mean(0))


def test_accuracy_by_place_has_the_accuracy_as_its_mean(runs: list[Run]) -> None:
    for run in runs:
        assert len(run.by_place) == run.task.setting.steps
        assert sum(run.by_place) / len(run.by_place) == pytest.approx(run.test.token_accuracy)


def test_a_run_is_plain_numbers(runs: list[Run]) -> None:
    for run in runs:
        assert json.loads(json.dumps(asdict(run)))["epochs"] == 2
        assert (run.matrix is None) == (run.mean_matrix is None) == (run.task.score == "none")


def test_runs_are_gathered_by_length(runs: list[Run]) -> None:
    comparison = gather(runs)
    assert comparison.setting == SMALL
    assert comparison.runs == runs[:7]
    assert comparison.lengths == [(3, runs[0], runs[1]), (4, runs[7], runs[8])]


def test_the_best_attends_whatever_the_one_without_attention_reaches(runs: list[Run]) -> None:
    def scored(run: Run, token: float, aligned: float | None) -> Run:
        return replace(run, test=Accuracy(token, 0), alignment_accuracy=aligned)

    given = [scored(runs[0], 100, None), *(scored(run, 90, 50) for run in runs[1:7])]
    given[3], given[5] = scored(runs[3], 95, 60), scored(runs[5], 95, 70)
    assert gather(given).best == given[5]


def test_training_ends_when_enough_is_right() -> None:
    seen: list[Epoch] = []
    task = Task("dot", "luong", replace(SMALL, epochs=40, learning_rate=1e-2, enough=40.0))
    run = train_task(task, seen.append)
    accuracies = [epoch.train.token_accuracy for epoch in seen]
    assert len(seen) == run.epochs < 40
    assert max([0.0, *accuracies[:-1]]) < 40 <= accuracies[-1]


def test_the_clip_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    plain = reverse.train_reverse

    def spy(*arguments: object, **options: object) -> object:
        seen.append(options["clip"])
        return plain(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(reverse, "train_reverse", spy)
    for clip in (0.0, 0.5):
        train_task(Task("none", "luong", replace(SMALL, clip=clip, epochs=1)))
    assert seen == [None, 0.5]
