"""Attention maps of every family: equal to transformers' own, and to softmax(scale * q . k + bias) of their vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.data.examples import ImageExample
from regard.errors import InputError
from regard.inference.translation.subwords import Subwords
from regard.interpret.attention.maps import AttentionMaps
from regard.interpret.attention.recording import record_attention
from regard.models import Deit, DeitConfig, Elmo, ElmoConfig, Seq2Seq, Transformer
from regard.nn.recording import record
from tests.inference.generation.folders import chat_folder
from tests.interpret.conftest import Both, translator

TEXT, SECOND = "the film was good, and so was the day", "we love it"


def assert_maps_equal(ours: np.ndarray[Any, Any], theirs: tuple[torch.Tensor, ...]) -> None:
    expected = torch.cat(theirs).detach().numpy()
    assert ours.shape == expected.shape
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def weights_from_queries_and_keys(one: AttentionMaps) -> np.ndarray[Any, Any]:
    """Compute the weights as the page does."""
    assert one.query is not None and one.key is not None and one.scale is not None
    scores = one.scale * one.query @ one.key.transpose(0, 1, 3, 2)
    rows, columns = scores.shape[2:]
    distance = np.arange(columns)[None] - np.arange(rows)[:, None]
    if one.bias is not None:
        scores = scores + one.bias[:, distance + rows - 1]
    if one.causal:
        scores = np.where(distance > 0, -np.inf, scores)
    for layer, window in enumerate(one.windows):
        scores[layer] = np.where(abs(distance) > (columns if window is None else window), -np.inf, scores[layer])
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    result: np.ndarray[Any, Any] = powers / powers.sum(-1, keepdims=True)
    return result


def test_bert_with_a_text_pair(bert: Both) -> None:
    found = record_attention(bert.ours, bert.tokenizer, TEXT, SECOND)
    assert bert.tokenizer is not None
    encoding = bert.tokenizer.encode(TEXT, SECOND)
    with torch.no_grad():
        theirs = bert.theirs(
            torch.tensor([encoding.ids]), token_type_ids=torch.tensor([encoding.segments]), output_attentions=True
        )
    (one,) = found.maps
    assert_maps_equal(one.weights, theirs.attentions)
    np.testing.assert_allclose(weights_from_queries_and_keys(one), one.weights, atol=1e-5)
    assert (found.family, found.texts, found.truncated) == ("bert", [TEXT, SECOND], 0)
    assert (one.kind, one.causal, one.is_self_attention) == ("encoder", False, True)
    assert one.scale == pytest.approx(6**-0.5)
    assert one.rows is one.columns
    assert one.rows.tokens == tuple(encoding.tokens)
    assert one.rows.segments == tuple(encoding.segments)
    assert 0 < sum(one.rows.segments) < len(one.rows.tokens)


def test_grouped_queries_and_windows(tmp_path: Path) -> None:
    (one,) = record_attention(*regard.load(chat_folder(tmp_path)), TEXT).maps
    assert one.windows == [7, 7] and one.weights.shape[1] == 4 and len(one.rows.tokens) > 9
    np.testing.assert_allclose(weights_from_queries_and_keys(one), one.weights, atol=1e-5)
    assert not one.weights[..., 8:, 0].any() and one.select(layer=2).windows == [7]


def test_gpt_reads_a_pair_as_one_text(gpt: Both) -> None:
    found = record_attention(gpt.ours, gpt.tokenizer, "the film", "good day")
    assert gpt.tokenizer is not None
    ids = gpt.tokenizer.encode("the film good day").ids
    with torch.no_grad():
        theirs = gpt.theirs(torch.tensor([ids]), output_attentions=True)
    (one,) = found.maps
    assert_maps_equal(one.weights, theirs.attentions)
    np.testing.assert_allclose(weights_from_queries_and_keys(one), one.weights, atol=1e-5)
    assert not np.triu(one.weights, 1).any()
    assert (one.kind, one.causal, one.is_self_attention) == ("decoder", True, True)
    assert one.rows.tokens == ("the", " film", "␣", "good", " day")
    assert one.rows.words == (0, 1, 2, 2, 3)
    assert one.rows.segments == (0, 0, 1, 1, 1)


def test_t5_with_a_given_output(t5: Both) -> None:
    found = record_attention(t5.ours, t5.tokenizer, "the film", "a day")
    assert t5.tokenizer is not None
    source, target = ([*t5.tokenizer.encode(text).ids, 1] for text in ("the film", "a day"))
    with torch.no_grad():
        theirs = t5.theirs(
            torch.tensor([source]), decoder_input_ids=torch.tensor([[0, *target[:-1]]]), output_attentions=True
        )
    encoder, decoder, cross = found.maps
    assert [one.kind for one in found.maps] == ["encoder", "decoder", "cross"]
    assert_maps_equal(encoder.weights, theirs.encoder_attentions)
    assert_maps_equal(decoder.weights, theirs.decoder_attentions)
    assert_maps_equal(cross.weights, theirs.cross_attentions)
    for one in found.maps:
        np.testing.assert_allclose(weights_from_queries_and_keys(one), one.weights, atol=1e-5)
    assert encoder.bias is not None and decoder.bias is not None and cross.bias is None
    assert encoder.bias.shape == (4, 2 * len(source) - 1)
    assert [one.causal for one in found.maps] == [False, True, False]
    assert [one.is_self_attention for one in found.maps] == [True, False, False]
    assert cross.rows.tokens[-1] == "</s>" and decoder.rows.tokens[0] == "<pad>"
    assert cross.rows.tokens[:-1] == decoder.rows.tokens[1:]
    assert cross.columns == encoder.rows
    assert found.map() is cross and found.map("decoder") is decoder


def test_t5_decodes_greedily(t5: Both) -> None:
    found = record_attention(t5.ours, t5.tokenizer, "the film", max_tokens=12)
    cross = found.map("cross")
    tokens = cross.rows.tokens
    assert 1 <= len(tokens) <= 13
    with torch.no_grad():
        ids = torch.tensor([[*t5.tokenizer.encode("the film").ids, 1]])  # type: ignore[union-attr]
        theirs = t5.theirs.generate(ids, do_sample=False, num_beams=1, max_new_tokens=len(tokens) - 1, eos_token_id=1)
    expected = [number for number in theirs[0].tolist()[1:] if number != 1]
    assert [t5.tokenizer.id(token) if token.startswith("<") else None for token in tokens][-1] == 1  # type: ignore[union-attr]
    assert found.texts[1] == t5.tokenizer.decode(expected).strip()  # type: ignore[union-attr]


def test_deit_has_a_distillation_token() -> None:
    small = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    model = Deit(DeitConfig(image_size=(8, 12), patch_size=(4, 3), **small))
    found = record_attention(model, None, image=ImageExample(np.zeros((16, 20, 3), np.uint8), None, "cat.png"))
    assert found.grid == (2, 4) and found.maps[0].weights.shape == (2, 2, 10, 10)
    assert found.maps[0].rows.tokens[:3] == ("[CLS]", "[DIST]", "1,1")
    assert found.maps[0].rows.special == (True, True, *[False] * 8)


def test_vit_equals_transformers(vit: Both) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    found = record_attention(vit.ours, None, image=ImageExample(pixels, None, "cat.png"))
    values = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 127.5 - 1
    with torch.no_grad():
        theirs = vit.theirs(values, output_attentions=True)
    (one,) = found.maps
    assert_maps_equal(one.weights, theirs.attentions)
    np.testing.assert_allclose(weights_from_queries_and_keys(one), one.weights, atol=1e-5)
    assert (one.kind, found.grid, found.texts) == ("vit", (2, 4), ["cat.png"])
    assert one.rows.tokens == ("[CLS]", "1,1", "1,2", "1,3", "1,4", "2,1", "2,2", "2,3", "2,4")
    assert found.image is not None
    np.testing.assert_array_equal(found.image, pixels)


def test_translator_maps_equal_step_by_step_decoding(subwords: Subwords) -> None:
    model = translator(subwords)
    assert isinstance(model, Transformer)
    found = record_attention(model, subwords, "the red house", "das rote Haus")
    source, target = subwords.encode_sources(["the red house"])[0], subwords.encode_targets(["das rote Haus"])[0]
    with torch.inference_mode(), record(model.eval()) as tape:
        _, state = model.start(torch.tensor([source]))
        for token in target[:-1]:
            _, state = model.step(torch.tensor([token]), state)
    assert_maps_equal(found.map("encoder").weights, tuple(tape.attention("self", "encoder")))
    assert_maps_equal(found.map("decoder").weights, tuple(tape.attention("self", "decoder")))
    assert_maps_equal(found.map("cross").weights, tuple(tape.attention("cross")))
    for one in found.maps:
        np.testing.assert_allclose(weights_from_queries_and_keys(one), one.weights, atol=1e-5)
    words = found.map("cross").columns
    spelled = ["".join(t for t, w in zip(words.tokens, words.words, strict=True) if w == n) for n in range(4)]
    assert [word.replace("␣", " ") for word in spelled] == [" the", " red", " house", "<|endoftext|>"]


@pytest.mark.parametrize("recipe", ["luong", "deck"])
@pytest.mark.parametrize("score", ["dot", "general", "additive"])
def test_recurrent_translator_maps(subwords: Subwords, score: str, recipe: str) -> None:
    model = translator(subwords, family="lstm", score=score, recipe=recipe)
    assert isinstance(model, Seq2Seq)
    found = record_attention(model, subwords, "the red house", "das Haus")
    (one,) = found.maps
    source, target = subwords.encode_sources(["the red house"])[0], subwords.encode_targets(["das Haus"])[0]
    with torch.inference_mode(), record(model.eval()) as tape:
        _, state = model.start(torch.tensor([source]))
        for token in target[:-1]:
            _, state = model.step(torch.tensor([token]), state)
    assert_maps_equal(one.weights, tuple(tape.attention("cross")))
    assert one.weights.shape == (1, 1, len(target), len(source))
    assert one.kind == "lstm" and not one.causal and not one.is_self_attention
    if score == "additive":
        assert one.query is None and one.key is None and one.scale is None
    else:
        assert one.scale == 1.0
        np.testing.assert_allclose(weights_from_queries_and_keys(one), one.weights, atol=1e-5)


def test_training_mode_is_restored(bert: Both) -> None:
    bert.ours.train()
    try:
        first, second = (record_attention(bert.ours, bert.tokenizer, TEXT).maps[0].weights for _ in range(2))
        np.testing.assert_array_equal(first, second)
        assert bert.ours.training
    finally:
        bert.ours.eval()


def test_long_texts_are_truncated_with_a_note(bert: Both, gpt: Both, t5: Both) -> None:
    for model, limit in ((bert, 40), (gpt, 40)):
        found = record_attention(model.ours, model.tokenizer, "the day " * 60)
        assert found.maps[0].weights.shape[2] == limit
        assert found.truncated > 0
        assert found.truncation_note.startswith(f"{found.truncated} tokens ") and "40 remain" in found.truncation_note
    found = record_attention(t5.ours, t5.tokenizer, "the day " * 60, "the film " * 60, max_tokens=9)
    assert found.map("cross").weights.shape[2:] == (9, 9)
    assert found.map("cross").columns.tokens[-1] == "</s>"
    assert record_attention(bert.ours, bert.tokenizer, TEXT).truncation_note == ""


@pytest.mark.parametrize(
    ("text", "second", "options", "message"),
    [
        ("", None, {}, "the text is empty"),
        (" \n", None, {}, "the text is empty"),
        ("a", "  ", {}, "the second text is empty"),
        ("a", None, {"image": ImageExample(np.zeros((2, 2), np.uint8), None, "x")}, "needs a Vision Transformer"),
    ],
)
def test_invalid_input_is_rejected(
    bert: Both, text: str, second: str | None, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        record_attention(bert.ours, bert.tokenizer, text, second, **options)


def test_unsupported_models_are_rejected(vit: Both, bert: Both, subwords: Subwords) -> None:
    with pytest.raises(InputError, match="reads images; give it an image"):
        record_attention(vit.ours, None, "a cat")
    with pytest.raises(InputError, match="has no tokenizer"):
        record_attention(bert.ours, None, "a")
    with pytest.raises(InputError, match="does not translate"):
        record_attention(bert.ours, subwords, "a")
    with pytest.raises(InputError, match="needs its Subwords"):
        record_attention(translator(subwords), bert.tokenizer, "a")
    with pytest.raises(InputError, match="has no attention"):
        record_attention(translator(subwords, family="lstm", score="none"), subwords, "a")
    with pytest.raises(InputError, match="has no attention"):
        record_attention(
            Elmo(ElmoConfig(vocab_size=9, num_characters=0, hidden_size=4, cell_size=4)), bert.tokenizer, "a"
        )


def test_missing_layers_and_heads_are_rejected(bert: Both) -> None:
    one = record_attention(bert.ours, bert.tokenizer, TEXT).maps[0]
    for layer in (3, -1):
        chosen = one.select(layer, 3)
        assert (chosen.weights.shape[:2], chosen.layers) == ((1, 1), [3])
        np.testing.assert_array_equal(chosen.weights[0, 0], one.weights[2, 3])
    for layer, head, message in [
        (4, 0, "no layer 4.*layers 1 to 3"),
        (0, 0, "no layer 0.*0 is the embeddings, which have no attention"),
        (-4, 0, "no layer -4"),
        (1, 4, "no head 4.*0 to 3"),
    ]:
        with pytest.raises(InputError, match=message):
            one.select(layer, head)


def test_json_document(bert: Both) -> None:
    found = record_attention(bert.ours, bert.tokenizer, "good day")
    document = found.select(kind=None, layer=2, head=2).to_dict()
    assert document["texts"] == ["good day"]
    (one,) = document["maps"]  # type: ignore[misc]
    assert (one["layers"], one["heads"]) == ([2], [2])
    np.testing.assert_allclose(one["weights"][0][0], found.maps[0].weights[1, 2], atol=1e-6)
    assert one["rows"] == {
        "tokens": ["[CLS]", "good", "day", "[SEP]"],
        "words": [0, 1, 2, 3],
        "segments": [0] * 4,
        "special": [True, False, False, True],
    }
    with pytest.raises(InputError, match="no cross attention in this bert model; it has encoder"):
        found.select(kind="cross", layer=None, head=None)
