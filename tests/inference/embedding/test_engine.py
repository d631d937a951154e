"""The engine: vectors and tokens do not depend on the batch, the order or the lengths of texts."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import regard
from regard.errors import InputError, RegardError
from regard.inference.embedding.engine import EmbeddingEngine, TextError
from regard.inference.embedding.sentence_transformers import SentenceSettings
from regard.models import Bert, BertConfig
from regard.text import Tokenizer

TEXTS = [
    "the film was funny and good",
    "dull",
    "no one would call it a good film, but they love the long way it goes down with water!",
    "it is what it is",
    "dull",
    "she said: 'zebra crossings are 17 ways to go'",
]
H6 = ["0", "-1", "-2", "sum(1:)", "sum(-4:)", "concat(-4:)"]

Pair = tuple[nn.Module, Tokenizer]


@pytest.fixture(scope="module")
def pair(tiny_bert_folder: Path) -> Pair:
    model, tokenizer = regard.load(tiny_bert_folder)
    assert tokenizer is not None
    return model, tokenizer


def transformers_states(folder: Path, tokenizer: Tokenizer) -> list[list[torch.Tensor]]:
    """transformers' hidden states (T, W): a list of layers for each text."""
    from transformers import BertModel

    theirs = BertModel.from_pretrained(str(folder), attn_implementation="eager").eval()
    encodings = tokenizer.encode_batch(TEXTS)
    longest = max(map(len, encodings))
    ids = torch.tensor([e.ids + [0] * (longest - len(e)) for e in encodings])
    keep = torch.tensor([[1] * len(e) + [0] * (longest - len(e)) for e in encodings])
    with torch.no_grad():
        states = theirs(ids, attention_mask=keep, output_hidden_states=True).hidden_states
    return [[layer[row, : len(e)] for layer in states] for row, e in enumerate(encodings)]


@pytest.fixture(scope="module")
def reference(tiny_bert_folder: Path, pair: Pair) -> list[list[torch.Tensor]]:
    return transformers_states(tiny_bert_folder, pair[1])


def select_layers(states: Sequence[torch.Tensor], layers: str) -> torch.Tensor:
    """Reference implementation of a layer expression."""
    return {
        "0": lambda: states[0],
        "-1": lambda: states[-1],
        "-2": lambda: states[-2],
        "sum(1:)": lambda: torch.stack(list(states[1:])).sum(0),
        "sum(-4:)": lambda: torch.stack(list(states[-4:])).sum(0),
        "concat(-4:)": lambda: torch.cat(list(states[-4:]), dim=-1),
    }[layers]()


def test_only_the_model_is_in_inference_mode(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[bool] = []
    vectors = EmbeddingEngine._vectors

    def spy(self: EmbeddingEngine, *arguments: Any, **options: Any) -> torch.Tensor:
        modes.append(torch.is_inference_mode_enabled())
        return vectors(self, *arguments, **options)

    monkeypatch.setattr(EmbeddingEngine, "_vectors", spy)
    engine = EmbeddingEngine(*pair)
    for _ in engine.embed_steps(TEXTS, np.empty((len(TEXTS), engine.width), dtype=np.float32)):
        assert not torch.is_inference_mode_enabled()
    EmbeddingEngine(*pair, pooling="none").embed_tokens(TEXTS)
    engine.embed_ids(engine.tokenizer.encode_ids(TEXTS))
    assert len(modes) == 3 and all(modes)


@pytest.mark.parametrize("layers", H6)
@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "none"])
def test_layers_and_poolings_equal_transformers(
    layers: str, pooling: str, pair: Pair, reference: list[list[torch.Tensor]]
) -> None:
    engine = EmbeddingEngine(*pair, layers=layers, pooling=pooling)
    expected = [select_layers(states, layers) for states in reference]
    if pooling == "none":
        found = [one.vectors for one in engine.embed_tokens(TEXTS)]
    else:
        pool: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            "cls": lambda x: x[0],
            "mean": lambda x: x.mean(0),
            "max": lambda x: x.amax(0),
        }
        expected = [pool[pooling](x) for x in expected]
        found = list(engine.embed(TEXTS))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == np.float32
        assert ours.shape[-1] == engine.width
        np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-5)


def test_layers_of_a_real_model_equal_transformers(minilm_folder: Path) -> None:
    model, tokenizer = regard.load(minilm_folder)
    assert tokenizer is not None
    reference = transformers_states(minilm_folder, tokenizer)
    for layers in H6:
        expected = np.stack([select_layers(states, layers).mean(0).numpy() for states in reference])
        np.testing.assert_allclose(EmbeddingEngine(model, tokenizer, layers=layers).embed(TEXTS), expected, atol=2e-5)


@pytest.mark.parametrize(("layers", "run"), [("0", 0), ("-2", 1), ("1", 1), ("concat(:2)", 1), ("sum(1:)", 2)])
def test_layers_above_the_last_requested_one_are_not_run(layers: str, run: int, pair: Pair) -> None:
    calls: list[int] = []
    hooks = [
        block.register_forward_hook(lambda *_, number=number: calls.append(number))
        for number, block in enumerate(pair[0].encoder.layers)  # type: ignore[arg-type, union-attr]
    ]
    try:
        EmbeddingEngine(*pair, layers=layers).embed(["the film"])
    finally:
        for hook in hooks:
            hook.remove()
    assert calls == list(range(run))


def assert_independent_of_batch(
    pair: Pair, texts: list[str], *, batchings: int, normalize: bool, tolerance: float
) -> None:
    """Assert that each text's vector in random batches equals its vector alone."""
    engine = EmbeddingEngine(*pair, normalize=normalize)
    alone = {text: engine.embed([text])[0] for text in texts}
    rng = random.Random(7)
    for _ in range(batchings):
        batch = rng.choices(texts, k=rng.randint(2, 12))
        np.testing.assert_allclose(engine.embed(batch), [alone[text] for text in batch], atol=tolerance, rtol=0)


@pytest.mark.parametrize(("normalize", "tolerance"), [(False, 1e-5), (True, 1e-6)])
def test_a_vector_does_not_depend_on_the_batch(normalize: bool, tolerance: float, pair: Pair) -> None:
    texts = [*TEXTS, *(" ".join(TEXTS[:n]) for n in range(2, 5)), *("dull film " * n for n in range(1, 40, 4))]
    assert_independent_of_batch(pair, texts, batchings=100, normalize=normalize, tolerance=tolerance)


@pytest.mark.parametrize(("normalize", "tolerance"), [(False, 1e-5), (True, 1e-6)])
def test_a_vector_of_a_real_model_does_not_depend_on_the_batch(
    normalize: bool, tolerance: float, minilm_folder: Path
) -> None:
    model, tokenizer = regard.load(minilm_folder)
    assert tokenizer is not None
    assert_independent_of_batch((model, tokenizer), TEXTS, batchings=5, normalize=normalize, tolerance=tolerance)


def test_order_is_preserved_and_equal_texts_have_equal_vectors(pair: Pair) -> None:
    engine = EmbeddingEngine(*pair)
    there, back = engine.embed(TEXTS), engine.embed(TEXTS[::-1])
    np.testing.assert_allclose(there, back[::-1], atol=1e-6)
    np.testing.assert_allclose(there[1], there[4], atol=1e-6)
    assert np.abs(there[0] - there[1]).max() > 0.1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("bf16", 0.1)])
def test_many_texts_on_a_gpu(precision: str, tolerance: float, pair: Pair) -> None:
    """Enough of them that batches are recorded as CUDA graphs where that is possible."""
    texts = [" ".join(["the film was long"] * (1 + index % 7)) for index in range(20_000)]
    expected = EmbeddingEngine(*pair, precision="fp32").embed(texts[:7])
    found = EmbeddingEngine(*pair, precision=precision, device="cuda").embed(texts)
    pair[0].cpu()
    for start in (0, 19_992):
        np.testing.assert_allclose(found[start : start + 7], expected, atol=tolerance)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("heads", [4, 6])
def test_heads_for_which_there_is_no_kernel(heads: int, pair: Pair) -> None:
    """Of 12 and 8 values: kernels for packed batches have multiples of 8."""
    config = BertConfig(
        vocab_size=pair[1].size, hidden_size=48, num_hidden_layers=2, num_attention_heads=heads, intermediate_size=64
    )
    model = Bert(config, output_heads=())
    texts = [" ".join(["the film was long"] * (1 + index % 7)) for index in range(3_000)]
    expected = EmbeddingEngine(model, pair[1], precision="fp32").embed(texts[:7])
    found = EmbeddingEngine(model, pair[1], precision="bf16", device="cuda").embed(texts)
    np.testing.assert_allclose(found[:7], expected, atol=0.1)


@pytest.mark.parametrize("pooling", ["mean", "none"])
def test_vectors_that_are_no_numbers_are_an_error(pooling: str, pair: Pair) -> None:
    damaged = copy.deepcopy(pair[0])
    damaged.embedding.tokens.weight.data[:] = float("nan")  # type: ignore[union-attr]
    engine = EmbeddingEngine(damaged, pair[1], pooling=pooling)
    with pytest.raises(RegardError, match="NaN or infinity"):
        engine.embed_tokens(["the film"]) if pooling == "none" else engine.embed(["the film"])


def test_normalized_vectors_have_length_one(pair: Pair) -> None:
    plain, unit = EmbeddingEngine(*pair).embed(TEXTS), EmbeddingEngine(*pair, normalize=True).embed(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(unit * np.linalg.norm(plain, axis=1, keepdims=True), plain, atol=1e-5)
    for one in EmbeddingEngine(*pair, pooling="none", normalize=True).embed_tokens(TEXTS[:2]):
        np.testing.assert_allclose(np.linalg.norm(one.vectors, axis=1), 1, atol=1e-6)


def test_no_texts_give_no_rows(pair: Pair) -> None:
    assert EmbeddingEngine(*pair, layers="concat(:)").embed([]).shape == (0, 96)
    assert EmbeddingEngine(*pair, pooling="none").embed_tokens([]) == []


def test_token_offsets_and_word_indices(pair: Pair) -> None:
    text = "The  FILM goes\tdown,\u00e9h?"
    one = EmbeddingEngine(*pair, pooling="none").embed_tokens(["dull", text])[1]
    assert one.vectors.shape == (len(one.tokens), 32)
    sliced = [text[start:end] for start, end in one.offsets]
    assert (one.tokens[0], one.tokens[-1], sliced[0], sliced[-1]) == ("[CLS]", "[SEP]", "", "")
    for token, part in zip(one.tokens[1:-1], sliced[1:-1], strict=True):
        assert token.removeprefix("##") == part.lower().replace("\u00e9", "e")
    assert one.words[0] == one.words[-1] == -1
    by_word = ["".join(part for part, word in zip(sliced, one.words, strict=True) if word == n) for n in range(6)]
    assert by_word == ["The", "FILM", "goes", "down", ",", "\u00e9h"]


def test_long_texts_are_cut_and_counted(pair: Pair) -> None:
    engine = EmbeddingEngine(*pair, max_length=6)
    assert engine.max_length == 6
    long, short = engine.embed(["the film was so good and long", "dull"])
    assert engine.truncated == 1
    np.testing.assert_allclose(long, engine.embed(["the film was so"])[0], atol=1e-6)
    np.testing.assert_allclose(short, EmbeddingEngine(*pair).embed(["dull"])[0], atol=1e-6)
    tokens = (
        EmbeddingEngine(*pair, max_length=6, pooling="none").embed_tokens(["the film was so good and long"])[0].tokens
    )
    assert tokens == ["[CLS]", "the", "film", "was", "so", "[SEP]"]


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_windows_are_joined_by_their_length(pooling: str, pair: Pair) -> None:
    model, tokenizer = pair
    text = "the film was so good and long that she would see it"
    body = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.cls_token_id is not None and tokenizer.sep_token_id is not None
    windows = [
        [tokenizer.cls_token_id, *body[start : start + 5], tokenizer.sep_token_id] for start in range(0, len(body), 5)
    ]
    assert len(windows) == 3 and len(windows[-1]) < 7  # otherwise all weights would be equal
    with torch.no_grad():
        states = [model(torch.tensor([ids]))[0] for ids in windows]
    if pooling == "max":
        expected = torch.stack([state.amax(0) for state in states]).amax(0)
    else:
        parts = [state.mean(0) if pooling == "mean" else state[0] for state in states]
        lengths = [len(ids) for ids in windows]
        expected = sum(p * n for p, n in zip(parts, lengths, strict=True)) / sum(lengths)  # type: ignore[assignment]
    engine = EmbeddingEngine(*pair, max_length=7, long="windows", pooling=pooling)
    found = engine.embed(["dull", text, "so"])
    np.testing.assert_allclose(found[1], expected.numpy(), atol=1e-5)
    np.testing.assert_allclose(found[[0, 2]], EmbeddingEngine(*pair, pooling=pooling).embed(["dull", "so"]), atol=1e-6)
    assert engine.truncated == 1


def test_a_long_text_is_an_error_on_request(pair: Pair) -> None:
    engine = EmbeddingEngine(*pair, max_length=4, long="error")
    engine.check_texts(["the film"])
    for refuse in (engine.check_texts, engine.embed):
        with pytest.raises(TextError, match=r"text 2 .*'the film was'.* 1 tokens more than the 4") as error:
            refuse(["dull", "the film was"])
        assert error.value.index == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "avg"}, "unknown pooling 'avg'; .*choices: cls, lasttoken, max, mean, "),
        ({"long": "drop"}, "unknown way with long texts 'drop'"),
        ({"pooling": "none", "long": "windows"}, "use cut or error"),
        ({"layers": "-4"}, "layers 0 to 2"),
        ({"max_length": 0}, "at least 1"),
        ({"max_length": True}, "expected a number of tokens"),
        ({"max_length": 129}, "only 128 positions"),
        ({"max_length": 2}, "2 special tokens leave no room"),
    ],
)
def test_invalid_options(options: dict[str, object], message: str, pair: Pair) -> None:
    with pytest.raises(InputError, match=message):
        EmbeddingEngine(*pair, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "stated", "limit"), [(None, None, 128), (None, 64, 64), (None, 512, 128), (100, 64, 100), (8, 64, 8)]
)
def test_the_limit(wanted: int | None, stated: int | None, limit: int, pair: Pair) -> None:
    """The user's setting overrides the files; the number of positions is the upper limit."""
    assert EmbeddingEngine(*pair, max_length=wanted, settings=SentenceSettings(max_length=stated)).max_length == limit


def test_models_that_cannot_embed_text_are_refused(pair: Pair) -> None:
    with pytest.raises(InputError, match="this bert model cannot embed text: it has no tokenizer"):
        EmbeddingEngine(pair[0], None)
    with pytest.raises(InputError, match="this Linear model cannot embed text: it has no layers"):
        EmbeddingEngine(nn.Linear(2, 2), pair[1])


def test_each_method_refuses_the_pooling_of_the_other(pair: Pair) -> None:
    with pytest.raises(InputError, match=r"call embed_tokens\(\)"):
        EmbeddingEngine(*pair, pooling="none").embed(["a"])
    with pytest.raises(InputError, match=r"call embed\(\)"):
        EmbeddingEngine(*pair, pooling="mean").embed_tokens(["a"])


def test_progress_is_reported_until_the_end(pair: Pair) -> None:
    progress: list[int] = []
    EmbeddingEngine(*pair).embed(["the film was long " * 20] * 60, on_progress=progress.append)
    assert len(progress) > 1
    assert progress == sorted(progress)
    assert progress[-1] == 60


def test_inference_mode_does_not_leak_to_the_caller(pair: Pair) -> None:
    seen: list[bool] = []
    EmbeddingEngine(*pair).embed(["a", "b"], on_progress=lambda _: seen.append(torch.is_inference_mode_enabled()))
    assert seen == [False]
