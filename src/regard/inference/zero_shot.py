"""Classifies texts with labels that no training had: the models of `tasks.zero_shot`, and when no label fits.

"None" is decided by a threshold on the score of the best label. It is chosen on null hypotheses: labels that have
nothing to do with the texts. A text gets the best of as many of them as there are labels; the threshold is such that
this score exceeds it in a given share of cases. The share is measured again with other texts and other unrelated
labels. It is not that of labels that are wrong but near the texts' subject, which are accepted more often.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel

from regard.checkpoints.loaded_model import LoadedModel
from regard.data.examples import TextExample
from regard.errors import InputError
from regard.events import Event, Progress, map_events
from regard.inference.embedding.engine import load_engine
from regard.models.family import describe_model
from regard.tasks.encoder_with_head import EncoderWithHead, VectorHead
from regard.tasks.evaluation.result import EvaluationResult
from regard.tasks.fine_tuned_model import MAX_LENGTH, FineTunedModel, predict, predict_steps
from regard.tasks.inputs import VectorSettings
from regard.tasks.prediction.result import PredictResult
from regard.tasks.text_classification import TextClassification
from regard.tasks.zero_shot import NONE, EntailmentLabels, SimilarityLabels, hypotheses_of, without_labels

NLI_TEMPLATE = "This example is {}."  # that of transformers
EMBEDDING_TEMPLATE = "{}"
TEXTS = {"entailment": 64, "similarity": 512}  # on which "none" is calibrated: a pair costs more than a vector
DRAWS = 16  # sets of unrelated labels for each text
MIN_UNRELATED = 40
# Things of many fields, in an order without meaning: even and odd ones are two samples.
UNRELATED = tuple(
    """
    volcanoes chess knitting opera glaciers beekeeping heraldry pottery astronomy carpentry falconry ballet
    archaeology sailing poetry mushrooms lighthouses fencing geology calligraphy tapestries dinosaurs origami
    submarines waterfalls chemistry violins castles butterflies surfing genealogy reefs blacksmiths deserts
    puppetry algebra canoes fossils wrestling perfume sculpture penguins windmills trigonometry embroidery comets
    rowing mythology bridges orchids juggling microscopes skiing tulips gargoyles philosophy accordions
    earthquakes horseshoes tectonics gymnastics cathedrals sponges mosaics ostriches kites viruses rugby clocks
    moss magnetism ferries bagpipes eclipses jousting marble turtles grammar avalanches vineyards cricket
    telescopes snails weaving hurricanes pyramids harps ferns boxing gravity cartography lobsters fountains
    meteorology trombones camels archery genetics swamps porcelain
    """.split()  # noqa: SIM905
)


class NoneCalibration(BaseModel):
    """How "none" is decided: `threshold` of the `fit` of a prediction, the highest score of a label by itself, chosen
    for the `rate` at which unrelated labels exceed it; `measured` is that share for others. `texts` were read, and
    `labels` tried for each at once."""

    threshold: float
    rate: float
    measured: float
    texts: int
    labels: int


class ClassifyResult(PredictResult):
    """One of the `labels` for each row of the input, by `method` entailment or similarity; or, if the input had a
    column of labels, their `evaluation`, and no predictions."""

    page_view: ClassVar[str | None] = None
    view_type: ClassVar[str | None] = None

    method: str
    labels: list[str]
    template: str
    none: NoneCalibration | None = None
    evaluation: EvaluationResult | None = None

    @classmethod
    def of(cls, result: PredictResult, **more: Any) -> ClassifyResult:
        found = cls(**{name: getattr(result, name) for name in PredictResult.model_fields}, **more)
        for name in PredictResult.__private_attributes__:
            setattr(found, name, getattr(result, name))
        return found

    def to_text(self) -> str:
        return super().to_text() if self.evaluation is None else self.evaluation.to_text()

    def to_table(self) -> Any:
        return super().to_table() if self.evaluation is None else self.evaluation.to_table()


@dataclass(frozen=True)
class ZeroShotClassifier:
    """A model with labels. `make` makes the same model of other labels, each of which is scored by itself."""

    model: FineTunedModel
    method: str
    labels: tuple[str, ...]
    template: str
    make: Callable[..., FineTunedModel]

    @classmethod
    def of(
        cls, loaded: LoadedModel, labels: Sequence[str], *, template: str | None = None, multi_label: bool = False
    ) -> ZeroShotClassifier:
        """With an NLI model, or with an embedding model; InputError for any other."""
        _check_labels(labels)
        if loaded.fine_tuned is not None:
            chosen = NLI_TEMPLATE if template is None else template
            make = _entailment(loaded, chosen)
            return cls(make(labels, multi_label=multi_label), "entailment", tuple(labels), chosen, make)
        if multi_label:
            raise InputError(
                f"{loaded.name} compares vectors, and a cosine does not tell whether a label holds; give an NLI model "
                "for several labels per text"
            )
        chosen = EMBEDDING_TEMPLATE if template is None else template
        make = _similarity(loaded, chosen)
        return cls(make(labels), "similarity", tuple(labels), chosen, make)

    def with_none(
        self, texts: Sequence[str], rate: float
    ) -> Generator[Event, None, tuple[ZeroShotClassifier, NoneCalibration]]:
        """The model with a threshold for "none" that is chosen on the texts and on unrelated labels."""
        if NONE in self.labels:
            raise InputError(f"{NONE!r} is one of the labels, and --none answers it where no label fits; rename it")
        if getattr(self.model.task, "multi_label", False):
            raise InputError("with several labels per text a text may have none already; leave --none out")
        if len(texts) < 2:
            raise InputError(f"--none is calibrated on the texts, and there are {len(texts)}; expected at least 2")
        names = without_labels(UNRELATED, self.labels)
        if self.method == "entailment":
            names = names[: max(2 * len(self.labels), MIN_UNRELATED)]
        at_once = min(len(self.labels), len(names) // 2)
        null = self.make(names, multi_label=True)
        examples = [TextExample(text) for text in texts]
        predictions, _ = yield from map_events(
            predict_steps(null, examples, device=null.device),
            lambda done: Progress(stage="calibrating none", done=done, total=len(texts)),
        )
        key = self.model.task.score_name  # type: ignore[attr-defined]
        scores = np.array([list(one[key].values()) for one in predictions])
        generator = np.random.default_rng(0)
        chosen_on = _best_of(scores[::2, ::2], at_once, generator)
        threshold = float(np.quantile(chosen_on, 1 - rate))
        measured = float((_best_of(scores[1::2, 1::2], at_once, generator) > threshold).mean())
        calibration = NoneCalibration(
            threshold=threshold, rate=rate, measured=measured, texts=len(texts), labels=at_once
        )
        model = self.make(self.labels, threshold=threshold)
        return ZeroShotClassifier(model, self.method, self.labels, self.template, self.make), calibration


def none_notes(none: NoneCalibration) -> list[str]:
    """What the threshold for "none" is worth."""
    few = ", which are few" if none.texts < 30 else ""
    return [
        f"none: where fit, the highest score of a label by itself, is not above {none.threshold:.3f}. Of labels that "
        f"have nothing to do with the texts, the best of {none.labels} exceeds this in {100 * none.measured:.1f}% of "
        f"cases (aim: {100 * none.rate:.1f}%; {none.texts} texts{few}). Labels that are wrong but near the subject are "
        "accepted more often"
    ]


def sample_texts(texts: Iterable[str], count: int) -> list[str]:
    """At most `count` texts, drawn at random from any number of them."""
    chosen: list[str] = []
    generator = random.Random(0)
    for number, text in enumerate(texts):
        if len(chosen) < count:
            chosen.append(text)
        elif (position := generator.randrange(number + 1)) < count:
            chosen[position] = text
    return chosen


def _best_of(scores: NDArray[np.float64], count: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """The highest of `count` random columns of each row, several times."""
    best = []
    for _ in range(DRAWS):
        columns = np.argsort(generator.random(scores.shape), axis=1)[:, :count]
        best.append(np.take_along_axis(scores, columns, axis=1).max(1))
    return np.concatenate(best)


def _entailment(loaded: LoadedModel, template: str) -> Callable[..., FineTunedModel]:
    model: FineTunedModel = loaded.fine_tuned
    task = model.task
    if not isinstance(task, TextClassification) or task.multi_label or task.num_texts == 1 or task.reads_images:
        raise InputError(
            f"{loaded.name} is a model for {task.name}; zero-shot classification needs an NLI model (of pairs of "
            "texts, with a class 'entailment'), or an embedding model"
        )
    classes = task.labels

    def make(labels: Sequence[str], **options: Any) -> FineTunedModel:
        return replace(model, task=EntailmentLabels(labels, template=template, classes=classes, **options))

    return make


def _similarity(loaded: LoadedModel, template: str) -> Callable[..., FineTunedModel]:
    engine = load_engine(loaded, normalize=True)

    def make(labels: Sequence[str], *, multi_label: bool = False, threshold: float | None = None) -> FineTunedModel:
        hypotheses = hypotheses_of(labels, template)
        vectors = torch.from_numpy(engine.embed(hypotheses))
        settings = VectorSettings(engine.pooling, True, 1)
        head = VectorHead(engine.width, len(labels), settings)
        head.output.weight.data.copy_(vectors)
        head.output.bias.data.zero_()
        model = FineTunedModel(
            SimilarityLabels(labels, threshold=threshold),
            EncoderWithHead(loaded.model, head.to(engine.device)).eval(),
            loaded.tokenizer,
            engine.max_length or MAX_LENGTH,
            folder=loaded.folder,
        )
        own = predict(model, [TextExample(text) for text in hypotheses], device=engine.device)
        if any(abs(one["cosines"][label] - 1) > 1e-3 for one, label in zip(own, labels, strict=True)):
            raise InputError(
                f"{loaded.name}: its vectors are more than the pooled last layer of a {describe_model(loaded.model)} "
                "model; classify with another embedding model, or with an NLI model"
            )
        return model

    return make


def _check_labels(labels: Sequence[str]) -> None:
    if not labels:
        raise InputError("there are no labels; expected at least one, such as --labels delivery,quality,price")
    for label in labels:
        if not label.strip():
            raise InputError("a label is blank; expected a word or more")
        if list(labels).count(label) > 1:
            raise InputError(f"the label {label!r} is given twice; give each once")
