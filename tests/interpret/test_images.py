"""Images as model input, and attention of pretrained, fine-tuned and translation models."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.errors import InputError
from regard.inference.load_model import load_model
from regard.inference.translation.subwords import Subwords
from regard.inference.translation.translator import (
    Translator,
    as_translation_model,
    default_alignment_heads,
    save_translator,
)
from regard.interpret.attention.recording import record_attention
from regard.interpret.images import check_image, read_image
from regard.models import Bert, Transformer
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
from regard.tasks.text_classification import TextClassification
from regard.text import Tokenizer
from tests.interpret.conftest import translator


def test_attention_of_a_pretrained_model(tiny_bert_folder: Path) -> None:
    model, tokenizer = load_model(tiny_bert_folder)
    assert isinstance(model, Bert) and isinstance(tokenizer, Tokenizer)


def test_attention_of_a_translator(subwords: Subwords, tmp_path: Path) -> None:
    model = as_translation_model(translator(subwords))
    save_translator(Translator(model, subwords, default_alignment_heads(model)), tmp_path / "en-de")
    loaded, reader = load_model(tmp_path / "en-de")
    assert isinstance(loaded, Transformer) and isinstance(reader, Subwords)
    ours, theirs = (record_attention(*pair, "the dog") for pair in ((loaded, reader), (model, subwords)))
    assert ours.texts == theirs.texts
    np.testing.assert_allclose(ours.map("cross").weights, theirs.map("cross").weights, atol=1e-6)


def test_a_fine_tuned_model_uses_its_encoder(tiny_bert_folder: Path, tmp_path: Path) -> None:
    model, tokenizer = load_model(tiny_bert_folder)
    assert isinstance(tokenizer, Tokenizer)
    task = TextClassification(("bad", "good"))
    tuned = EncoderWithHead.from_encoder(model, task)
    save_fine_tuned(FineTunedModel(task, tuned, tokenizer, 64), tmp_path / "tuned")
    loaded, reader = load_model(tmp_path / "tuned")
    assert isinstance(loaded, Bert)
    ours, theirs = record_attention(loaded, reader, "a film"), record_attention(tuned, tokenizer, "a film")
    np.testing.assert_allclose(ours.maps[0].weights, theirs.maps[0].weights, atol=1e-6)


def test_attention_of_an_image_file(tmp_path: Path) -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    Image.fromarray(pixels).save(tmp_path / "cat.png")
    np.testing.assert_array_equal(read_image(tmp_path / "cat.png").pixels, pixels)
    with pytest.raises(InputError, match="no such file; expected an image"):
        read_image(tmp_path / "dog.png")
    with pytest.raises(InputError, match="no such file; expected an image"):
        read_image(tmp_path)
    (tmp_path / "three.idx").write_bytes(b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (3, 1, 1)) + b"abc")
    with pytest.raises(InputError, match="holds 3 images"):
        read_image(tmp_path / "three.idx")


def encoded_image(kind: str, size: tuple[int, int] = (4, 2), mode: str = "RGB") -> bytes:
    content = io.BytesIO()
    Image.new(mode, size, "white").save(content, kind)
    return content.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_uploaded_images_are_read(kind: str, tmp_path: Path) -> None:
    content = encoded_image(kind)
    check_image(content, "my cat")
    path = tmp_path / f"cat.{kind.lower()}"
    path.write_bytes(content)
    np.testing.assert_array_equal(read_image(path).pixels, np.full((2, 4, 3), 255, np.uint8))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "my cat is no image; expected a PNG or JPEG file"),
        (b"<svg/>", "my cat is no image"),
        (encoded_image("GIF"), "my cat is GIF; expected a PNG or JPEG file"),
        (encoded_image("PNG", (10_000, 5_001), "1"), "my cat has 10,000 x 5,001 pixels; expected at most 50,000,000"),
        (encoded_image("PNG", (20_000, 20_000), "1"), "my cat has too many pixels; expected at most 50,000,000"),
    ],
    ids=["nothing", "markup", "another kind", "large", "larger"],
)
def test_invalid_uploads_are_rejected(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_image(content, "my cat")


def test_too_many_pixels_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "large.png").write_bytes(encoded_image("PNG", (10_000, 5_001), "1"))
    with pytest.raises(InputError, match=r"large\.png has 10,000 x 5,001 pixels"):
        read_image(tmp_path / "large.png")
    (tmp_path / "broken.png").write_bytes(encoded_image("PNG")[:-30])
    with pytest.raises(InputError, match=r"broken\.png cannot be read as an image"):
        read_image(tmp_path / "broken.png")
