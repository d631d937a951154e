"""Parts of the chapter on recurrent translation: the reversed digits, from the data set to the bottleneck."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from regard.checkpoints.models import Models
from regard.events import Progress
from regard.lessons.course.chapter import (
    CodeBlock,
    Computed,
    DeckRow,
    Exercise,
    ExerciseAnswer,
    Part,
    Prose,
    beside_deck,
)
from regard.render.story import ChartLine, LineChart, NumberMatrix, Paragraph, StoryBlock, StoryTable

if TYPE_CHECKING:
    from regard.lessons.reverse_comparison import ReverseRun

EXAMPLE = (2, 8, 1, 6)  # the deck's sequence
LENGTHS = (4, 8, 12, 20)


def _one_hot(models: Models) -> list[StoryBlock]:
    from regard.lessons.reverse import create_dataset, one_hot_decode

    data = create_dataset(20, 5, 4, 10, held_out=[EXAMPLE])
    X, y = data.X_test[0], data.y_test[0]
    columns = list(map(str, range(X.shape[1])))
    everything = create_dataset(2000, 200, 4, 10).X_train.argmax(-1)
    rows = [
        DeckRow("length of a row", "9", str(X.shape[1]), "each row of the slide lost a zero", "P1"),
        DeckRow("index of the 1 in the row of 8", "7", str(int(X[1].argmax())), "", "P1"),
        DeckRow(
            "digits in the data",
            '"maximum - 1"',
            f"{int(everything.min())} to {int(everything.max())}",
            "n_features is the maximum plus 1; the slide's comment has it the wrong way round",
            "P2",
        ),
    ]
    return [
        Paragraph(text=f"Sequence {one_hot_decode(X)} is encoded as X; y encodes {one_hot_decode(y)}."),
        NumberMatrix(title="X", values=X.tolist(), rows=list(map(str, one_hot_decode(X))), columns=columns, digits=0),
        NumberMatrix(title="y", values=y.tolist(), rows=list(map(str, one_hot_decode(y))), columns=columns, digits=0),
        beside_deck(rows),
    ]


def _configuration(models: Models) -> list[StoryBlock]:
    from regard.lessons.reverse import create_dataset, new_model
    from regard.lessons.reverse_comparison import ReverseConfig

    config = ReverseConfig()
    model = new_model(create_dataset(20, 5, config.steps, config.features), units=config.units)
    parts = [
        ("encoder LSTM", sum(p.numel() for p in model.encoder.parameters())),
        ("decoder LSTM", sum(p.numel() for p in model.decoder.cell.parameters())),
        ("output layer", sum(p.numel() for p in model.decoder.output.parameters())),
    ]
    rows = [
        DeckRow("n_timesteps_in", "4", str(config.steps)),
        DeckRow("n_features", "10", str(config.features)),
        DeckRow("training sequences", "2000", str(config.train_size)),
        DeckRow("test sequences", "200", str(config.test_size), "none of them is in the training set"),
        DeckRow("batch_size", "10", str(config.batch_size)),
        DeckRow("rnn_units", "16", str(config.units)),
        DeckRow("optimizer, loss", "adam, categorical_crossentropy", "Adam, cross-entropy"),
        DeckRow("epochs", "not given", f"at most {config.epochs}", "ends early when all training digits are right"),
    ]
    sizes = StoryTable(
        headers=("part", "parameters"),
        rows=[(name, f"{count:,}") for name, count in parts],
        caption="Parameters; PyTorch's LSTM has two bias vectors where Keras has one",
    )
    return [beside_deck(rows), sizes]


def _decoder_loop(models: Models) -> list[StoryBlock]:
    rows = []
    for step, (given, written) in enumerate(_loop_steps(), start=1):
        source = "all zeros" if step == 1 else "its own last output"
        rows.append((str(step), source, f"{sum(given):.3f}", " ".join(f"{value:.2f}" for value in written)))
    headers = ("decoder step", "input", "sum of the input", "output: a probability for each digit 0 to 9")
    text = (
        "A decoder before any training, on the sequence of the slide. Its first input is a vector of zeros; each later "
        "input is the softmax output of the step before, which is why it sums to 1."
    )
    return [Paragraph(text=text), StoryTable(headers=headers, rows=rows, text_columns=[1, 3])]


def _loop_steps() -> list[tuple[list[float], list[float]]]:
    """The input and the output of each step of an untrained decoder."""
    import torch

    from regard.lessons.reverse import create_dataset, new_model
    from regard.nn.recording import record

    data = create_dataset(20, 5, 4, 10, held_out=[EXAMPLE])
    model = new_model(data).eval()
    with torch.inference_mode(), record(model) as tape:
        outputs = model(data.X_test[:1], steps=4).softmax(-1)[0]
    inputs = tape.hidden("decoder")[0][0]
    return list(zip(inputs.tolist(), outputs.tolist(), strict=True))


def _four_digits(models: Models) -> Generator[Progress, None, list[StoryBlock]]:
    run = yield from _train(4, 10)
    digits = run.task.config.test_size * run.task.config.steps
    right = round(run.test.token_accuracy * digits / 100)
    rows = [
        DeckRow("train, percent", "99.550", f"{run.train.token_accuracy:.3f}", "per digit", "P13"),
        DeckRow("test, percent", "98.125", f"{run.test.token_accuracy:.3f}", "per digit", "P13"),
        DeckRow("correct test digits", "785 of 800", f"{right} of {digits}", "98.125% of 200 sequences is no number"),
        DeckRow("correct test sequences, percent", "not given", f"{run.test.sequence_accuracy:.1f}", "all four right"),
    ]
    text = f"One LSTM encoder-decoder without attention, trained for {run.epochs} epochs in {run.seconds:.0f} s."
    return [Paragraph(text=text), beside_deck(rows)]


def _by_length(models: Models) -> Generator[Progress, None, list[StoryBlock]]:
    runs: list[ReverseRun] = []
    for length in LENGTHS:
        run = yield from _train(length, 16, done=len(runs), total=len(LENGTHS))
        runs.append(run)
    chance = 100 / 16
    table = StoryTable(
        headers=("digits of 16", "test accuracy per digit, percent", "whole sequences, percent", "epochs"),
        rows=[
            (str(length), f"{run.test.token_accuracy:.3f}", f"{run.test.sequence_accuracy:.1f}", str(run.epochs))
            for length, run in zip(LENGTHS, runs, strict=True)
        ],
        caption="No attention: the deck's model and budget at four lengths; 20 digits of 16 is the deck's exercise",
    )
    chart = LineChart(
        lines=[
            ChartLine(name="no attention", values=[run.test.token_accuracy for run in runs]),
            ChartLine(name="guessing", values=[chance] * len(runs)),
        ],
        at=list(LENGTHS),
        title="Test accuracy per digit, percent",
        across="digits to reverse",
        up="percent",
    )
    last = runs[-1]
    positions = last.accuracy_by_position
    text = (
        f"At {LENGTHS[-1]} digits the first digit it writes, the last it has read, is right in {positions[0]:.1f}% of "
        f"the test sequences, and the last one it writes in {positions[-1]:.1f}%; guessing gives {chance:.2f}%. The "
        "next chapter trains the same model with attention."
    )
    return [table, chart, Paragraph(text=text)]


def _train(steps: int, features: int, *, done: int = 0, total: int = 1) -> Generator[Progress, None, ReverseRun]:
    """Train the deck's model without attention; the exercise changes steps and features only."""
    from regard.lessons.reverse_comparison import ReverseTask, reverse_config, train_task

    yield Progress(stage=f"training on sequences of {steps}", done=done, total=total, unit="models")
    config = reverse_config(steps=steps, features=features, as_in_deck=True)
    return train_task(ReverseTask("none", "luong", config))


def _information(models: Models) -> list[StoryBlock]:
    from math import log2

    rows = [
        (f"{steps} digits of {features}", f"{features**steps:,}" if steps < 9 else f"{features}^{steps}", f"{bits:.1f}")
        for steps, features in ((4, 10), (8, 16), (20, 16))
        for bits in (steps * log2(features),)
    ]
    return [
        StoryTable(
            headers=("sequences", "how many there are", "bits to tell them apart"),
            rows=rows,
            caption="What one context vector must hold",
        )
    ]


def _answer_first_input(models: Models) -> ExerciseAnswer:
    given = _loop_steps()[0][0]
    return ExerciseAnswer(
        0 if not any(given) else 1,
        f"The {len(given)} numbers of the first input are all {given[0]:g}. All that the decoder knows of the sequence "
        "is in its initial state, the context. Translators start with the vector of a begin token instead.",
    )


def _answer_index(models: Models) -> ExerciseAnswer:
    from regard.lessons.reverse import create_dataset

    index = int(create_dataset(20, 5, 4, 10, held_out=[EXAMPLE]).X_test[0][1].argmax())
    return ExerciseAnswer(
        (7, 8, 9).index(index),
        f"At index {index}: counting starts at 0, and the digit is its own index. The slide shows it at index 7, since "
        "each of its rows lost a zero.",
    )


def _answer_unit(models: Models) -> ExerciseAnswer:
    percent = 98.125
    digits, sequences = percent / 100 * 800, percent / 100 * 200
    return ExerciseAnswer(
        0 if digits == int(digits) and sequences != int(sequences) else 1,
        f"{percent}% of the 800 digits of the test set are {digits:g}; {percent}% of its 200 sequences would be "
        f"{sequences:g}. So the slide counts digits: per-token accuracy, as Keras computes it.",
    )


def _answer_guess(models: Models) -> ExerciseAnswer:
    import random

    from regard.lessons.reverse import create_dataset

    targets = create_dataset(2000, 200, 20, 16).y_test.argmax(-1).flatten().tolist()
    rng = random.Random(0)
    right = sum(rng.randrange(16) == digit for digit in targets)
    levels = (0, 6, 16)
    return ExerciseAnswer(
        min(range(len(levels)), key=lambda level: abs(levels[level] - 100 * right / len(targets))),
        f"One digit in 16: {100 / 16:.2f}%. Guessing at random got {right} of the {len(targets)} test digits right, "
        f"{100 * right / len(targets):.2f}%. Keep this number in mind when you see what the model reaches.",
    )


def _answer_bits(models: Models) -> ExerciseAnswer:
    from math import log2

    bits = 20 * log2(16)
    return ExerciseAnswer(
        (13, 64, 80).index(round(bits)),
        f"20 digits of {log2(16):g} bits each: {bits:g} bits. The deck's first example, 4 digits of 10, needs "
        f"{4 * log2(10):.1f}. Both have to pass through one state of 16 units.",
    )


def _answer_parameters(models: Models) -> ExerciseAnswer:
    from regard.lessons.reverse import create_dataset, new_model

    data = create_dataset(20, 5, 4, 10)
    short = sum(p.numel() for p in new_model(data).parameters())
    long = sum(p.numel() for p in new_model(create_dataset(20, 5, 20, 10)).parameters())
    return ExerciseAnswer(
        0 if short == long else 1,
        f"It has {short:,} parameters for 4 digits and {long:,} for 20: the same cell is used at every time step, "
        "so a recurrent model can read sequences of any length. Whether it can remember them is another question.",
    )


REVERSAL_PARTS: tuple[Part, ...] = (
    Prose(
        "The lectures show the bottleneck with the smallest task that has one: read some digits and write them "
        "backwards. The input is a matrix with one row per digit, zeros except for a single 1.",
        heading="The worked example: reversed digits",
        spec=("B1",),
    ),
    Computed("one-hot", "X and y of [2, 8, 1, 6]", _one_hot, spec=("B1", "P1", "P2")),
    Exercise(
        "one-hot-index",
        "With n_features = 10, at which index is the 1 in the row of the digit 8?",
        ("7", "8", "9"),
        _answer_index,
        spec=("B1", "P1"),
    ),
    CodeBlock(
        "dataset",
        "from regard.lessons.reverse import create_dataset, one_hot_decode\n\n"
        "X_train, y_train, X_test, y_test = create_dataset(2000, 200, n_timesteps_in=4, n_features=10)\n"
        "print(one_hot_decode(X_train[0]), one_hot_decode(y_train[0]))\n"
        "print(X_train[0].int())",
        title="The data set",
        spec=("B1",),
    ),
    Computed("configuration", "The configuration of the lecture", _configuration, spec=("B2",)),
    Exercise(
        "parameters",
        "The model is built again for 20 digits instead of 4, with the same units and features. How many "
        "parameters does it have?",
        ("as many as before", "five times as many", "more, since it has more time steps to learn"),
        _answer_parameters,
        spec=("B2",),
    ),
    Computed("decoder-loop", "The decoder reads its own output", _decoder_loop, spec=("A1",)),
    Exercise(
        "first-input",
        "What is the decoder's input at its first step, in the lecture's code?",
        ("a vector of zeros", "the first digit of the input", "the last digit of the input"),
        _answer_first_input,
        spec=("A1",),
    ),
    Prose(
        "The slides report two accuracies for four digits without attention, and do not say what they count. Train "
        "the same model here and see the numbers side by side.",
        spec=("B3",),
    ),
    Computed("four-digits", "Four digits: the slide's accuracy and ours", _four_digits, slow=True, spec=("B3", "P13")),
    Exercise(
        "accuracy-of-what",
        "The slide prints a test accuracy of 98.125% for 200 sequences of four digits. What does it count?",
        ("digits", "whole sequences", "batches"),
        _answer_unit,
        spec=("B3", "P13"),
    ),
    Prose(
        "Then comes the exercise: change two variables, `n_steps_in = 20` and `n_features = 16`, and train again. "
        "Nothing else changes: 2,000 sequences, 16 units, batches of 10. Predict first.",
        heading="Longer sequences",
        spec=("B4",),
    ),
    Computed("information", "How much a sequence holds", _information, spec=("A2",)),
    Exercise(
        "bits",
        "How many bits does it take to tell all sequences of 20 digits from 0 to 15 apart?",
        ("13", "64", "80"),
        _answer_bits,
        spec=("A2", "B4"),
    ),
    Exercise(
        "guessing",
        "A model that has learned nothing guesses each of the 16 digits with equal probability. Which accuracy per "
        "digit does it reach?",
        ("0%", "about 6%", "about 16%"),
        _answer_guess,
        spec=("B4",),
    ),
    Computed("by-length", "Accuracy against length, without attention", _by_length, slow=True, spec=("A2", "B4")),
    CodeBlock(
        "train",
        "from regard.lessons.reverse import create_dataset, evaluate, new_model, train_reverse\n\n"
        "data = create_dataset(200, 50, n_timesteps_in=4, n_features=10)  # the lecture: 2000 and 200\n"
        "model = new_model(data, score='none')\n"
        "for epoch in train_reverse(model, data, epochs=2):  # the lecture does not say; 24 give its accuracy\n"
        "    print(epoch.number, epoch.loss)\n"
        "print(evaluate(model, data).test.token_accuracy)",
        title="Train it yourself",
        spec=("B2", "B3"),
    ),
    CodeBlock(
        "lesson",
        "regard lesson reverse --help",
        language="shell",
        title="The whole comparison; the exercise is --steps 20 --features 16 --as-in-deck",
        spec=("B4",),
    ),
)
