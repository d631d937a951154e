"""An image compared with texts: probabilities equal those of transformers; errors; attention of both towers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.cli.app import run
from regard.errors import InputError
from regard.inference.load_model import load_model
from regard.inference.similarity import SimilarityResult, compare_image_with_texts
from regard.interpret.attention.recording import attention_result, record_attention
from regard.interpret.images import read_image
from tests.inference.folders import tiny_clip

Image = pytest.importorskip("PIL.Image")
TEXTS = ["a photo of a cat", "A  PHOTO of a dog!", "naïve 日本", "x"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="module")
def loaded(clip: Path) -> LoadedModel:
    return load_model(clip)


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / "cat.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 61, 3), dtype=np.uint8)).save(path)
    return path


def test_similarities_equal_transformers(clip: Path, picture: Path) -> None:
    found = regard.similarity(picture, TEXTS, model=str(clip))
    model = transformers.CLIPModel.from_pretrained(clip).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(clip)
    processor = transformers.CLIPImageProcessorPil.from_pretrained(clip)
    with torch.no_grad():
        pixels = processor(images=Image.open(picture), return_tensors="pt").pixel_values
        texts = tokenizer(TEXTS, return_tensors="pt", padding=True)
        output = model(**{name: texts[name] for name in ("input_ids", "attention_mask")}, pixel_values=pixels)
    expected = output.logits_per_image.softmax(-1)[0]
    cosines = output.logits_per_image[0] / model.logit_scale.exp()
    assert isinstance(found, SimilarityResult) and [one.text for one in found.texts] == TEXTS
    assert [one.probability for one in found.texts] == pytest.approx(expected.tolist(), abs=1e-5)
    assert [one.cosine for one in found.texts] == pytest.approx(cosines.tolist(), abs=1e-5)
    assert sum(one.probability for one in found.texts) == pytest.approx(1)
    assert found.truncated == 0 and found.image == "cat.png"


def test_texts_are_independent_of_their_batch(loaded: LoadedModel, picture: Path) -> None:
    texts = [f"photo number {number}" for number in range(150)]  # of several batches
    found = compare_image_with_texts(*loaded, read_image(picture), texts)
    alone = compare_image_with_texts(*loaded, read_image(picture), [texts[77]])
    assert alone.texts[0].cosine == pytest.approx(found.texts[77].cosine, abs=1e-5)
    assert alone.texts[0].probability == 1
    longer = compare_image_with_texts(*loaded, read_image(picture), ["photo " * 40, "photo"])
    assert longer.truncated == 1


def test_the_command_ranks_the_texts(clip: Path, picture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["similarity", str(picture), *TEXTS, "--model", str(clip)]) == 0
    output = capsys.readouterr().out
    best = max(regard.similarity(picture, TEXTS, model=str(clip)).texts, key=lambda one: one.probability)
    assert best.text in output.splitlines()[3] and f"{best.cosine:.3f}" in output.splitlines()[3]
    assert all(text in output for text in TEXTS)


@pytest.mark.parametrize(
    ("texts", "message"),
    [([], "there is no text"), (["a", " "], "text 2 is empty; expected a description")],
)
def test_missing_texts_are_errors(loaded: LoadedModel, picture: Path, texts: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare_image_with_texts(*loaded, read_image(picture), texts)


def test_a_clip_without_tokenizer_says_so(loaded: LoadedModel, picture: Path) -> None:
    with pytest.raises(InputError, match="no tokenizer"):
        compare_image_with_texts(loaded.model, None, read_image(picture), ["a"])


def test_attention_over_patches_and_over_words(loaded: LoadedModel, picture: Path) -> None:
    image = record_attention(*loaded, image=read_image(picture))
    (maps,) = image.maps
    assert (maps.kind, maps.weights.shape, image.grid) == ("vit", (3, 4, 5, 5), (2, 2))
    assert maps.rows.tokens[:2] == ("[CLS]", "1,1")
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-5)
    assert attention_result(loaded, image=read_image(picture), layer=3).page_data()["grid"] == [2, 2]
    (words,) = record_attention(*loaded, "a photo").maps
    assert (words.kind, words.causal, words.weights.shape) == ("decoder", True, (2, 2, 7, 7))
    assert words.rows.tokens == ("<|startoftext|>", "a", "ph", "o", "t", "o", "<|endoftext|>")
    with pytest.raises(InputError, match="leave the text out"):
        record_attention(*loaded, "a photo", image=read_image(picture))
