"""Published models with task heads: the scores of transformers' pipelines, for every family, long texts and pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import regard
from regard.tasks.encoder_with_head import compute_logits
from tests.parity.published import HEADS, LONG, SENTENCES, publish
from tests.parity.references import REFERENCES, randomized

TOLERANCE = 1e-5
LABELS = [1, 2, 7]


def pipeline(task: str, model: Any, folder: Path, **options: Any) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return transformers.pipeline(task, model=model, tokenizer=tokenizer, device="cpu", **options)


def scores(model: Any, folder: Path, pairs: list[tuple[str, str | None]]) -> list[dict[str, float]]:
    """The score of each label by transformers' pipeline."""
    classify = pipeline("text-classification", model, folder, top_k=None)
    inputs = [{"text": a, **({} if b is None else {"text_pair": b})} for a, b in pairs]
    return [{one["label"]: one["score"] for one in classify(text, truncation=True)} for text in inputs]


def ours(prediction: dict[str, Any], labels: tuple[str, ...]) -> dict[str, float]:
    return prediction["probabilities"] if "probabilities" in prediction else {labels[0]: prediction["score"]}


@pytest.mark.parametrize("family", HEADS["SequenceClassification"])
def test_sequences_have_the_scores_of_the_pipeline(family: str, tmp_path: Path) -> None:
    for number in LABELS if family in ("bert", "gpt2") else LABELS[1:2]:
        folder = tmp_path / str(number)
        options = {"classifier_pooling": "mean"} if family == "modernbert" else {}
        theirs = publish(family, "SequenceClassification", folder, labels=number, **options)
        model = regard.load(folder)
        pairs = [*((text, None) for text in [*SENTENCES, LONG]), (SENTENCES[0], SENTENCES[1]), (SENTENCES[0], LONG)]
        pairs += [(LONG, SENTENCES[0]), (LONG, LONG)]
        expected = scores(theirs, folder, pairs)
        singles = model.predict([text for text, second in pairs if second is None]).predictions
        both = model.predict([list(pair) for pair in pairs if pair[1] is not None]).predictions
        for found, wanted in zip([*singles, *both], expected, strict=True):
            assert ours(found, model.task.labels) == pytest.approx(wanted, abs=TOLERANCE)


TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
SCHEMES = {"iob2": TAGS, "bioes": ["O", "B-X", "I-X", "E-X", "S-X"], "plain": ["O", "NOUN", "VERB"], "iob1": TAGS[::2]}
TAGGERS = [(family, "iob2") for family in HEADS["TokenClassification"]]
TAGGERS += [("bert", name) for name in SCHEMES if name != "iob2"]


@pytest.mark.filterwarnings("ignore:Tokenizer does not support")
@pytest.mark.parametrize(("family", "scheme"), TAGGERS)
def test_entities_are_those_of_the_pipeline(family: str, scheme: str, tmp_path: Path) -> None:
    theirs = publish(family, "TokenClassification", tmp_path, labels=SCHEMES[scheme])
    model = regard.load(tmp_path)
    for aggregation in ("none", "simple", "first", "average", "max"):
        tag = pipeline("token-classification", theirs, tmp_path, aggregation_strategy=aggregation)
        ours = model.with_aggregation(aggregation)
        for text in (sentence[:17] for sentence in SENTENCES):  # the pipeline cuts longer ones
            wanted, found = tag(text), ours.predict(text).predictions[0]["entities"]
            spans = [(one["start"], one["end"], one.get("entity_group", one.get("entity"))) for one in wanted]
            assert [(one["start"], one["end"], one["label"]) for one in found] == spans, (aggregation, text)
            scores = pytest.approx([one["score"] for one in wanted], abs=TOLERANCE)
            assert [one["probability"] for one in found] == scores


@pytest.mark.parametrize("family", HEADS["QuestionAnswering"])
def test_answers_have_the_logits_of_transformers(family: str, tmp_path: Path) -> None:
    theirs = publish(family, "QuestionAnswering", tmp_path, labels=2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    model = regard.load(tmp_path)
    example = model.task.example("is it?", "film day")
    (item,) = model.task.preprocess([example], model.input_builder)
    wanted = theirs(**tokenizer("is it?", "film day", return_tensors="pt"))
    ((_, found),) = compute_logits(model.model, [item], torch.device("cpu"))
    torch.testing.assert_close(found[:, 0], wanted.start_logits[0], atol=TOLERANCE, rtol=TOLERANCE)
    torch.testing.assert_close(found[:, 1], wanted.end_logits[0], atol=TOLERANCE, rtol=TOLERANCE)
    assert model.predict("is it?", "film day").predictions[0]["answer"] in "film day"


@pytest.mark.parametrize("family", HEADS["MultipleChoice"])
def test_choices_have_the_probabilities_of_transformers(family: str, tmp_path: Path) -> None:
    theirs = publish(family, "MultipleChoice", tmp_path, labels=1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    endings = ["is good.", "a bad day, or was it?", LONG]
    rows = tokenizer(["the film"] * 3, endings, truncation=True, padding=True, return_tensors="pt")
    logits = theirs(**{name: row[None] for name, row in rows.items()}).logits[0]
    (found,) = regard.load(tmp_path).predict("the film", "\n".join(endings)).predictions
    assert found["probabilities"] == pytest.approx(logits.softmax(-1).tolist(), abs=TOLERANCE)


IMAGES = {"vit": "ViTForImageClassification", "deit-plain": "DeiTForImageClassification"}
IMAGES |= {"deit": "DeiTForImageClassificationWithTeacher"}


@pytest.mark.parametrize("name", IMAGES)
def test_images_have_the_scores_of_the_pipeline(name: str, tmp_path: Path) -> None:
    config = REFERENCES[name]().config
    config.num_channels, config.num_labels = 3, 7
    theirs = randomized(getattr(transformers, IMAGES[name])(config))
    theirs.save_pretrained(tmp_path / "model")
    size = dict(zip(("height", "width"), config.image_size, strict=True))
    processor = transformers.ViTImageProcessorPil(size=size, do_center_crop=False)
    processor.save_pretrained(tmp_path / "model")
    picture = tmp_path / "picture.png"
    pixels = np.random.default_rng(0).integers(0, 256, (21, 33, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(picture)
    classify = transformers.pipeline("image-classification", model=theirs, image_processor=processor, top_k=7)
    wanted = {one["label"]: one["score"] for one in classify(str(picture))}
    model = regard.load(tmp_path / "model")
    model.save(tmp_path / "again")
    for one in (model, regard.load(tmp_path / "again")):
        assert one.predict(picture).predictions[0]["probabilities"] == pytest.approx(wanted, abs=TOLERANCE)
