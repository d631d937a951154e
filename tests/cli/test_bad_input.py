"""Invalid and unusual input through the verbs: a clear error or a correct result."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.cli.app import run, verb_commands

Captured = pytest.CaptureFixture[str]
Call = Callable[..., int]
QUICK = ("--set", "training.num_epochs=1", "--set", "training.batch_size=8", "--device", "cpu")
SETTINGS = (
    "training.learning_rate=5e-3",
    "training.num_epochs=12",
    "training.select=last",
    "training.max_length=32",
    "training.adversarial_epsilon=0",
)
LEARNED = [part for setting in SETTINGS for part in ("--set", setting)]
WORDS = "the film was good and my day was so long ."
THINGS = ("film", "good", "day")


@pytest.fixture
def call(one_thread: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    registers = verb_commands()
    return lambda *arguments: run([str(argument) for argument in arguments], registers=registers)


@pytest.fixture
def train_in_run(call: Call, tiny_bert_folder: Path) -> Call:
    """Trains in ./run, on ./train and ./dev."""

    def train_in_run(task: str, *more: object) -> int:
        return call(
            "train", task, "--train", "train", "--dev", "dev", "-m", tiny_bert_folder, "-o", "run", *QUICK, *more
        )

    return train_in_run


def reviews(*labels: str) -> str:
    return "".join(f"the film number {number} is so long\t{label}\n" for number, label in enumerate(labels))


def conll(sentences: int) -> str:
    words = "".join(f"{word} {'B-THING' if word == 'film' else 'O'}\n" for word in WORDS.split())
    return "\n".join([words] * sentences)


def squad(*answers: tuple[str, int]) -> str:
    questions = [
        {"id": str(number), "question": "how was it?", "answers": [{"text": text, "answer_start": start}]}
        for number, (text, start) in enumerate(answers)
    ]
    return json.dumps({"version": "1.1", "data": [{"paragraphs": [{"context": WORDS, "qas": questions}]}]})


def write(**files: str) -> None:
    for name, content in files.items():
        Path(name).write_text(content, encoding="utf-8")


@pytest.mark.parametrize(
    ("task", "train_content", "dev_content", "label"),
    [
        ("classify", reviews("pos", "neg", "pos"), reviews("pos", "fair"), "'fair'"),
        ("tag", conll(2), conll(1).replace("THING", "PLACE"), "'B-PLACE'"),
    ],
)
def test_a_label_missing_from_the_training_data(
    train_in_run: Call, call: Call, task: str, train_content: str, dev_content: str, label: str, capsys: Captured
) -> None:
    write(train=train_content, dev=dev_content, known=train_content)
    line = "dev line 2" if task == "classify" else "dev line 1"
    assert train_in_run(task) == 2
    message = capsys.readouterr().err
    assert f"{line}: the label {label} does not occur in the training data, which has " in message
    assert not Path("run").exists()
    Path("dev").write_text(train_content, encoding="utf-8")
    assert train_in_run(task) == 0
    write(dev=dev_content)
    capsys.readouterr()
    assert call("evaluate", "run", "--data", "dev", "--device", "cpu") == 2
    assert f"{line}: the label {label} does not occur in the training data" in capsys.readouterr().err


def test_training_data_with_one_class(train_in_run: Call, capsys: Captured) -> None:
    write(train=reviews("pos", "pos"), dev=reviews("pos", "neg"))
    assert train_in_run("classify") == 2
    assert "expected at least two classes, and the training data has only 'pos'" in capsys.readouterr().err
    write(train="the O\nfilm O\n", dev=conll(1))
    assert train_in_run("tag") == 2
    assert "expected entities, and all tags of the training data are 'O'" in capsys.readouterr().err
    write(train="the film\t1.5\nthe day\t1.5\n", dev="the film\t1.5\n")
    assert train_in_run("regress") == 2
    assert "expected different numbers" in capsys.readouterr().err
    assert not Path("run").exists()


def test_a_conll_line_without_its_tag(train_in_run: Call, capsys: Captured) -> None:
    write(train=conll(2) + "\nmy\nday O\n", dev=conll(1))
    assert train_in_run("tag") == 2
    message = capsys.readouterr().err
    assert f"train line {len(conll(2).splitlines()) + 2}: expected 2 columns" in message and "got 1: 'my'" in message


def test_answers_outside_their_context_are_left_out_and_counted(train_in_run: Call, capsys: Captured) -> None:
    write(train=squad(("good", 13), ("good", 14), ("film", 10_000), ("long", -3)), dev=squad(("good", 13)))
    assert train_in_run("answer") == 0
    message = capsys.readouterr().err
    assert "train: 1 examples of train (SQuAD v1.1)" in message
    assert "train: 3 left out: answer does not match the context at its offset" in message
    assert "train: 3 left out: question has no answer left" in message
    write(dev=squad(("good", 14)))
    assert train_in_run("answer", "--resume") == 2
    assert "dev: no answer matches the context" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "\n\n", "text\tlabel\n"])
def test_an_empty_dev_set(train_in_run: Call, call: Call, content: str, capsys: Captured) -> None:
    write(train=reviews("pos", "neg", "pos", "neg"), dev=content)
    assert train_in_run("classify") == 2
    message = capsys.readouterr().err
    assert ("dev is empty" in message or "dev has a header and no rows" in message) and not Path("run").exists()


@pytest.mark.parametrize("task", ["tag", "answer", "choose"])
def test_an_empty_dev_set_of_other_tasks(train_in_run: Call, task: str, capsys: Captured) -> None:
    choice = json.dumps({"ctx": "the film", "endings": ["was good", "was long"], "label": 1})
    write(train={"tag": conll(1), "answer": squad(("good", 13)), "choose": choice}[task], dev="\n")
    assert train_in_run(task) == 2
    assert "dev is empty" in capsys.readouterr().err
    if task == "answer":
        write(dev=json.dumps({"version": "1.1", "data": []}))
        assert train_in_run(task) == 2
        assert "dev has no examples" in capsys.readouterr().err


def shuffled_words(seed: int) -> list[str]:
    """Twenty-two words in random order, one of which is "good"."""
    words = [*WORDS.split(), *WORDS.replace("good", "long").split()]
    random.Random(seed).shuffle(words)
    return words


def tagged(words: list[str]) -> str:
    return "".join(f"{word} {'B-THING' if word in THINGS else 'O'}\n" for word in words) + "\n"


def question_paragraph(words: list[str]) -> dict[str, object]:
    context = " ".join(words)
    answers = [{"text": "good", "answer_start": context.index("good")}]
    return {"context": context, "qas": [{"id": "1", "question": "how was it?", "answers": answers}]}


def squads(*paragraphs: dict[str, object]) -> str:
    return json.dumps({"version": "1.1", "data": [{"paragraphs": paragraphs}]})


def test_tagging_five_thousand_words(train_in_run: Call, call: Call, capsys: Captured) -> None:
    words = [word for seed in range(100, 350) for word in shuffled_words(seed)][:5000]
    write(train="".join(tagged(shuffled_words(seed)) for seed in range(24)), dev=tagged(words), text=" ".join(words))
    assert train_in_run("tag", *LEARNED) == 0
    assert "f1                  100.00" in capsys.readouterr().out
    assert call("predict", "run", "text", "--device", "cpu") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["tags"]) == 5000
    starts = [match.start() for match in re.finditer("|".join(THINGS), found["text"])]
    assert [one["start"] for one in found["entities"]] == starts


def test_finding_an_answer_in_five_thousand_words(train_in_run: Call, call: Call, capsys: Captured) -> None:
    words = ["long" if word == "good" else word for word in WORDS.split() * 455][:5000]
    words[4321] = "good"
    write(
        train=squads(*(question_paragraph(shuffled_words(seed)) for seed in range(24))),
        dev=squads(question_paragraph(words)),
    )
    assert train_in_run("answer", *LEARNED) == 0
    assert "exact_match         100.00" in capsys.readouterr().out
    assert call("predict", "run", "dev", "--device", "cpu") == 0
    found = json.loads(capsys.readouterr().out)
    start = " ".join(words).index("good")
    assert (found["answer"], found["start"], found["end"]) == ("good", start, start + 4)
