"""The data of the attention view: the page reconstructs the model's attention from it, and it stays small."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from regard.checkpoints.loaded_model import LoadedModel
from regard.data.examples import ImageExample
from regard.errors import InputError
from regard.inference.translation.subwords import Subwords
from regard.interpret.attention import view as module
from regard.interpret.attention.maps import AttentionMaps, TokenAxis
from regard.interpret.attention.recording import attention_result, record_attention
from regard.interpret.attention.rollout import flow, rollout
from tests.interpret.conftest import Both, translator

Array = np.ndarray[Any, Any]
TEXT = "the film was good"
KEYS = {
    "view", "model", "texts", "maps", "image", "grid", "truncated", "notes", "place", "cli", "python",
}  # fmt: skip
MAP_KEYS = {
    "kind", "layers", "heads", "rows", "columns", "row_words", "column_words", "row_segments", "column_segments",
    "row_special", "column_special", "weights", "q", "k", "q_step", "k_step", "scale", "bias", "causal",
    "windows",
    "rollout", "rollout_largest", "flow", "flow_largest",
}  # fmt: skip


def page_data(name: str, model: Any, tokenizer: Any, *texts: str, **options: Any) -> Any:
    result = attention_result(LoadedModel(name, model, tokenizer), *texts, **options)
    return json.loads(json.dumps(result.page_data()))


def array(text: object, kind: str, *shape: int) -> Array:
    assert isinstance(text, str)
    return np.frombuffer(base64.b64decode(text), dtype=kind).reshape(shape)


def decode_vectors(document: Any, letter: str, tokens: int) -> Array:
    """Queries or keys, decoded as on the page."""
    shape = document["layers"], document["heads"], tokens
    if document[f"{letter}_step"] is None:
        return array(document[letter], "<f2", *shape, -1).astype(np.float32)
    steps = array(document[f"{letter}_step"], "<f2", *shape).astype(np.float32)
    return array(document[letter], "i1", *shape, -1) * steps[..., None]


def weights_from_page_data(document: Any) -> Array:
    rows, columns = len(document["rows"]), len(document["columns"])
    scores = (
        document["scale"]
        * decode_vectors(document, "q", rows)
        @ decode_vectors(document, "k", columns).transpose(0, 1, 3, 2)
    )
    distance = np.arange(columns)[None] - np.arange(rows)[:, None]
    if document["bias"] is not None:
        bias = array(document["bias"], "<f2", document["heads"], rows + columns - 1).astype(np.float32)
        scores = scores + bias[:, distance + rows - 1]
    if document["causal"]:
        scores = np.where(distance > 0, -np.inf, scores)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    result: Array = powers / powers.sum(-1, keepdims=True)
    return result


def check_names(document: Any, one: AttentionMaps) -> None:
    assert set(document) == MAP_KEYS
    assert (document["kind"], document["causal"]) == (one.kind, one.causal)
    assert (document["layers"], document["heads"]) == one.weights.shape[:2]
    for side, single, plural in ((one.rows, "row", "rows"), (one.columns, "column", "columns")):
        assert document[plural] == list(side.tokens)
        assert document[f"{single}_words"] == list(side.words)
        assert document[f"{single}_segments"] == list(side.segments)


def test_short_texts_include_weights_and_vectors(bert: Both) -> None:
    payload: Any = page_data("tiny", bert.ours, bert.tokenizer, TEXT, "so funny")
    found = record_attention(bert.ours, bert.tokenizer, TEXT, "so funny")
    assert set(payload) == KEYS
    assert json.loads(json.dumps(payload)) == payload
    assert payload["model"] == {"name": "tiny", "family": "bert", "depth": 3, "heads": 4}
    assert (payload["view"], payload["texts"], payload["image"]) == ("attention", [TEXT, "so funny"], None)
    assert (payload["truncated"], payload["notes"], payload["place"]) == (0, [], "#attention")
    (document,), (one,) = payload["maps"], found.maps
    check_names(document, one)
    tokens = len(one.rows.tokens)
    weights = array(document["weights"], "u1", 3, 4, tokens, tokens)
    np.testing.assert_array_equal(weights, np.rint(one.weights * 255))
    np.testing.assert_allclose(weights_from_page_data(document), one.weights, atol=5e-3)
    joined = array(document["rollout"], "u1", 3, tokens, tokens)
    largest = np.array(document["rollout_largest"])[:, None, None]
    np.testing.assert_allclose(joined / 255 * largest, rollout(one.weights), atol=0.5 / 255 * largest.max() + 1e-9)
    np.testing.assert_allclose(
        array(document["flow"], "u1", tokens, tokens) / 255 * document["flow_largest"],
        flow(one.weights),
        atol=0.5 / 255,
    )


def test_several_maps_with_a_position_bias(t5: Both) -> None:
    payload: Any = page_data("t5", t5.ours, t5.tokenizer, "the film", "good day")
    found = record_attention(t5.ours, t5.tokenizer, "the film", "good day")
    assert [document["kind"] for document in payload["maps"]] == ["encoder", "decoder", "cross"]
    for document, one in zip(payload["maps"], found.maps, strict=True):
        check_names(document, one)
        np.testing.assert_allclose(weights_from_page_data(document), one.weights, atol=5e-3)
        assert (document["rollout"] is None) == (document["flow"] is None) == (not one.is_self_attention)


def test_additive_attention_has_no_vectors(subwords: Subwords) -> None:
    model = translator(subwords, family="lstm", score="additive")
    payload: Any = page_data("lstm", model, subwords, "the red house", "das Haus")
    (document,) = payload["maps"]
    assert document["q"] is document["k"] is document["scale"] is None
    (note,) = payload["notes"]
    assert note.startswith("neurons are left out: ") and "a query and a key" in note
    weights = array(document["weights"], "u1", 1, 1, len(document["rows"]), len(document["columns"]))
    np.testing.assert_allclose(weights.sum(-1) / 255, 1.0, atol=0.05)


def test_image_maps(vit: Both) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    payload: Any = page_data("vit", vit.ours, None, image=ImageExample(pixels, None, "my cat.png"))
    assert payload["image"].startswith("data:image/png;base64,")
    assert payload["grid"] == [2, 4]


def test_long_texts_are_sent_as_vectors_then_as_int8_vectors(bert: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "the day " * 20
    one = record_attention(bert.ours, bert.tokenizer, text).maps[0]
    assert one.query is not None
    halves = module._vectors_size(one, 2)
    monkeypatch.setattr(module, "FORMS", (("whole", halves), ("vectors", halves), ("small", halves)))
    payload: Any = page_data("tiny", bert.ours, bert.tokenizer, text)
    (document,) = payload["maps"]
    assert document["weights"] is document["rollout"] is document["flow"] is document["q_step"] is None
    cut, rollout, flow = payload["notes"]
    assert cut.startswith("2 tokens ") and "40 remain" in cut
    assert rollout.startswith("rollout is left out") and flow.startswith("flow is left out") and "24 tokens" in flow
    assert len(document["q"]) + len(document["k"]) == halves
    np.testing.assert_allclose(weights_from_page_data(document), one.weights, atol=5e-3)
    monkeypatch.setattr(module, "FORMS", (("whole", 0), ("vectors", 0), ("small", 2 * halves)))
    (small,) = page_data("tiny", bert.ours, bert.tokenizer, text)["maps"]  # type: ignore[misc]
    sizes = [len(small[key]) for key in ("q", "k", "q_step", "k_step")]
    assert sum(sizes) < 0.7 * halves  # head size 6: a scale costs as much as two values
    assert small["weights"] is None and small["rollout"] is not None
    np.testing.assert_allclose(weights_from_page_data(small), one.weights, atol=0.05)
    assert np.abs(decode_vectors(small, "q", 40) - one.query).max() <= np.abs(one.query).max() / 127


def test_predicted_sizes_are_exact(bert: Both, t5: Both) -> None:
    for model, text in ((bert, TEXT), (t5, "the film")):
        found = record_attention(model.ours, model.tokenizer, text)
        maps: Any = found.page_data()["maps"]
        sent = sum(len(one[key] or "") for one in maps for key in ("weights", "q", "k", "rollout"))
        assert module._size(found.maps, "whole") == sent


def test_long_texts_are_truncated_for_the_page(bert: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORMS", (("whole", 3000), ("vectors", 3000), ("small", 3000)))
    monkeypatch.setattr(module, "MAX_SIZE", 3000)
    record = attention_result(LoadedModel("x", bert.ours, bert.tokenizer), "the day " * 20)
    assert len(record.maps[0].rows.tokens) == 40  # arrays and JSON keep all input tokens
    assert record.for_page is not None
    remaining = len(record.for_page.maps[0].rows.tokens)
    assert 8 <= remaining < 40
    notes: Any = record.page_data()["notes"]
    assert notes[0].startswith(f"{record.for_page.truncated} tokens were truncated; {remaining} remain")
    assert "page" in notes[0]
    monkeypatch.setattr(module, "FORMS", (("whole", 100), ("vectors", 100), ("small", 100)))
    monkeypatch.setattr(module, "MAX_SIZE", 100)
    with pytest.raises(InputError, match="3 x 4 maps of 40 x 40 tokens are too many for a page"):
        page_data("x", bert.ours, bert.tokenizer, "the day " * 20)


def test_full_size_models_stay_below_their_limits() -> None:
    """Computed from shapes only: 512 tokens with the built-in model (8 x 6 x 64) and a model of 12 x 12 x 64."""

    def shaped(layers: int, heads: int, tokens: int) -> AttentionMaps:
        empty = np.broadcast_to(np.float32(0), (layers, heads, tokens, 64))
        side = TokenAxis(("x",) * tokens, (0,) * tokens, (0,) * tokens)
        weights = np.broadcast_to(np.float32(0), (layers, heads, tokens, tokens))
        return AttentionMaps(
            kind="encoder",
            layers=list(range(1, layers + 1)),
            heads=list(range(heads)),
            causal=False,
            scale=0.125,
            rows=side,
            columns=side,
            weights=weights,
            query=empty,
            key=empty,
            is_self_attention=True,
        )

    assert module._form([shaped(8, 6, 512)]) == "vectors"
    assert module._form([shaped(12, 12, 512)]) == "small"
    assert module._size([shaped(12, 12, 512)], "small") <= 15_000_000
    assert module._form([shaped(8, 6, 200)]) == "whole"


def test_initial_location_of_the_page(t5: Both) -> None:
    found = record_attention(t5.ours, t5.tokenizer, "the film", "a day")
    assert found.select(kind="cross", layer=None, head=None).page_data()["place"] == "#attention?map=2"
    one_layer = found.select(kind="cross", layer=1, head=None)
    assert one_layer.page_data()["place"] == "#attention?map=2&layer=1&heads=all"
    with pytest.raises(InputError, match="no layer 3"):  # the encoder has layer 3, the decoder does not
        found.select(kind=None, layer=3, head=None)
