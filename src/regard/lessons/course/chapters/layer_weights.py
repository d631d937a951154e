"""Parts of the chapter on ELMo: from its layers to one vector, weights that a task learns, and fine-tuning."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from regard.checkpoints.models import Models
from regard.events import Progress, drain
from regard.lessons.course.chapter import CodeBlock, Computed, Exercise, ExerciseAnswer, Part, Prose
from regard.lessons.course.chapters.homonyms import HELD_OUT, TRAINING, VERB, Homonym
from regard.render.story import FigureRow, NumberMatrix, Paragraph, StoryBlock, StoryTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from regard.interpret.layer_mix import LearnedMix

ELMO = "regard-elmo"
SENTENCE = "Let's stick to improvisation in this skit."  # the lecture's


def _mix(models: Models) -> list[StoryBlock]:
    from regard.interpret.layer_mix import mix_layers

    with models.use(ELMO) as loaded:
        mix = mix_layers(loaded, SENTENCE, "stick")
    num_shown, width = 4, mix.forward.shape[1]
    layers = [f"layer {layer}" for layer in range(len(mix.forward))]
    dimensions = list(map(str, range(num_shown)))
    both = [*dimensions, *(str(width + number) for number in range(num_shown))]
    joined = [[*row[:num_shown], *row[width : width + num_shown]] for row in mix.concatenated.tolist()]
    weighted = [[*row[:num_shown], *row[width : width + num_shown]] for row in mix.weighted.tolist()]
    vector = mix.vector.tolist()
    return [
        Paragraph(
            text=f"“stick” in “{SENTENCE}”. Each direction has {width} numbers, so a concatenated layer has "
            f"{2 * width}; {num_shown} of each half are shown."
        ),
        FigureRow(
            blocks=[
                NumberMatrix(
                    title="forward", values=mix.forward[:, :num_shown].tolist(), rows=layers, columns=dimensions
                ),
                NumberMatrix(
                    title="backward", values=mix.backward[:, :num_shown].tolist(), rows=layers, columns=dimensions
                ),
            ]
        ),
        NumberMatrix(title="1. Concatenate the hidden layers", values=joined, rows=layers, columns=both),
        NumberMatrix(
            title="2. Multiply each layer by its weight "
            f"({', '.join(f'{weight:.3f}' for weight in mix.weights)}; before a task has learned any)",
            values=weighted,
            rows=layers,
            columns=both,
            digits=3,
        ),
        NumberMatrix(
            title="3. Sum",
            values=[[*vector[:num_shown], *vector[width : width + num_shown]]],
            rows=["stick"],
            columns=both,
            digits=3,
        ),
    ]


def _layers_of(models: Models, examples: Sequence[Homonym]) -> NDArray[np.float32]:
    """The vectors (layers, examples, width) of each example's word."""
    from regard.interpret.layer_mix import layer_vectors

    with models.use(ELMO) as loaded:
        return layer_vectors(loaded, [one.text for one in examples], [one.word for one in examples])[0]


def _learn(models: Models) -> dict[str, LearnedMix]:
    """The weights that two tasks on the same frozen vectors learn."""
    from regard.interpret.layer_mix import learn_mix

    layers = _layers_of(models, TRAINING)
    words = sorted({one.word for one in TRAINING})
    return {
        "noun or verb?": learn_mix(layers, [int(one.label == VERB) for one in TRAINING]),
        "which word is it?": learn_mix(layers, [words.index(one.word) for one in TRAINING]),
    }


def _task_weights(models: Models) -> list[StoryBlock]:
    learned = _learn(models)
    rows = [
        (task, *(f"{weight:.3f}" for weight in one.weights), f"{one.gamma:.3f}", f"{one.accuracy:.1f}")
        for task, one in learned.items()
    ]
    count = len(next(iter(learned.values())).weights)
    headers = ("task", *(f"layer {layer}" for layer in range(count)), "gamma", "training accuracy, percent")
    text = (
        f"Two tasks learn their weights on the same vectors of {len(TRAINING)} short sentences; the language model "
        "stays as it is. The weights are a softmax of one number per layer, and gamma scales the sum."
    )
    return [Paragraph(text=text), StoryTable(headers=headers, rows=rows)]


def _fine_tuning(models: Models) -> Generator[Progress, None, list[StoryBlock]]:
    import tempfile
    from pathlib import Path

    from regard.data.examples import TextExample
    from regard.data.readers import ExampleSet
    from regard.training.recipes.finetuning.config import FineTuningConfig
    from regard.training.recipes.finetuning.run import fine_tune

    sets = [
        ExampleSet([TextExample(one.text, label=one.label) for one in examples], name, f"{len(examples)} sentences")
        for name, examples in (("train", TRAINING), ("dev", HELD_OUT))
    ]
    common = ["training.num_epochs=20", "training.batch_size=8", "training.adversarial_epsilon=0"]
    common.append("training.select=last")  # so that the held-out sentences choose nothing
    kinds = {
        "frozen: ELMo as features": ["training.frozen=true", "training.learning_rate=0.01"],
        "all layers change": ["training.learning_rate=0.003"],
        "ULM-FiT: gradually, lower layers more slowly": [
            "training.learning_rate=0.003",
            f"training.layerwise_lr_decay={1 / 2.6:.4f}",
            "training.unfreeze=0.5",
        ],
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, settings) in enumerate(kinds.items()):
            yield Progress(stage=f"training: {name}", done=number, total=len(kinds), unit="runs")
            config = FineTuningConfig.load(overrides=[*common, *settings])
            events = fine_tune(
                "classify", *sets, model=ELMO, output=Path(folder) / str(number), config=config, device="cpu"
            )
            rows.append((name, f"{drain(events).mean['accuracy']:.1f}"))
    headers = ("training", f"accuracy on {len(HELD_OUT)} held-out sentences, percent")
    caption = f"Noun or verb, learned from {len(TRAINING)} sentences; each held-out one is {100 / len(HELD_OUT):.1f}%"
    return [StoryTable(headers=headers, rows=rows, caption=caption)]


def _answer_width(models: Models) -> ExerciseAnswer:
    with models.use(ELMO) as loaded:
        config: Any = loaded.model.config
    width, output = config.hidden_size, config.output_size
    return ExerciseAnswer(
        (1, 2, 3).index(output // width),
        f"One direction has {width} numbers, the vector {output}: both directions are next to each other. The layers "
        "are summed, so their number does not change the width.",
    )


def _answer_task(models: Models) -> ExerciseAnswer:
    learned = _learn(models)["which word is it?"]
    best = learned.weights.index(max(learned.weights))
    return ExerciseAnswer(
        0 if best == 0 else 1 if best == len(learned.weights) - 1 else 2,
        "The weights are "
        + ", ".join(f"{weight:.3f} for layer {layer}" for layer, weight in enumerate(learned.weights))
        + ". The embedding answers this question without any context; a task weights the layers that help it.",
    )


LAYER_PARTS: tuple[Part, ...] = (
    Prose(
        "To embed a word, ELMo takes what both directions computed for it. Three steps: concatenate the forward "
        "and the backward state of each layer; multiply each layer by a weight that the task learns; sum.",
        heading="From layers to one vector",
        spec=("C3",),
    ),
    Computed("mix", "The three steps with numbers", _mix, spec=("C3",)),
    Exercise(
        "width",
        "One direction of a layer has a certain number of units. How long is ELMo's vector of a word?",
        ("as long", "twice as long", "three times as long"),
        _answer_width,
        spec=("C3",),
    ),
    Computed("task-weights", "Weights that two tasks learn", _task_weights, spec=("C3",)),
    Exercise(
        "which-layer",
        "A task asks only which word it is (train, stick, help, …), not how it is used. Which layer gets the "
        "largest weight?",
        ("layer 0, the embedding", "the top layer", "a layer between them"),
        _answer_task,
        spec=("C3",),
    ),
    CodeBlock(
        "scalar-mix",
        "import regard\nfrom regard.checkpoints.loaded_model import LoadedModel\n"
        "from regard.interpret.layer_mix import mix_layers\n\n"
        "elmo = LoadedModel('regard-elmo', *regard.load('regard-elmo'))\n"
        "mix = mix_layers(elmo, \"Let's stick to the plan.\", 'stick', weights=[0.2, 0.3, 0.5])\n"
        "print(mix.concatenated.shape, mix.weights, mix.vector[:5])",
        title="The scalar mix",
        spec=("C3",),
    ),
    Prose(
        "ELMo leaves the language model as it is and learns only the weights of its layers. ULM-FiT, of the same "
        "year, also changes the model's parameters for the task: the top layers first, the lower ones later and "
        "with smaller steps, so that they do not forget what they know.",
        heading="Features, or fine-tuning",
        spec=("C5",),
    ),
    Computed("fine-tuning", "Frozen, all at once, gradually", _fine_tuning, slow=True, spec=("C5",)),
    CodeBlock(
        "ulmfit",
        "printf 'He took a train.\\tnoun\\nThey train here.\\tverb\\nThe train left.\\tnoun\\nWe train "
        "today.\\tverb\\n' > senses.tsv\n"
        "regard train classify --train senses.tsv --dev senses.tsv --model regard-elmo --ulmfit --epochs 2 "
        "--output noun-or-verb",
        language="shell",
        title="Fine-tune the LSTMs as ULM-FiT does",
        spec=("C5",),
    ),
)
