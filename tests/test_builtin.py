"""The built-in models: complete, small enough, equal in transformers, and consistent with their model cards."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

import regard
from benchmarks.blanks import BLANKS, predict_blanks, read_blanks
from regard.inference.generation.beam_search import Beam
from regard.inference.generation.sampling import Sampling
from regard.inference.generation.text_generator import GenerationStream, TextGenerator
from regard.inference.translation import translator as translate
from regard.known import DEFAULT_CAUSAL_LM, DEFAULT_EMBEDDING_MODEL, DEFAULT_MODEL, builtin_folder, builtin_names
from regard.models import Bert, Gpt
from regard.nn.masks import Padded
from regard.text import Tokenizer

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"


@pytest.fixture(scope="module")
def loaded() -> tuple[Bert, Tokenizer]:
    model, tokenizer = regard.load(DEFAULT_MODEL)
    assert isinstance(model, Bert) and tokenizer is not None
    return model, tokenizer


@pytest.mark.parametrize("name", builtin_names())
def test_the_model_is_small_and_has_a_complete_card(name: str) -> None:
    folder = builtin_folder(name)
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 45e6
    card = (folder / "README.md").read_text(encoding="utf-8")
    for heading in ("Evaluation", "Training data", "Training", "Limitations"):
        assert f"## {heading}" in card
    assert "{" not in card, "a figure was not filled in"


def test_the_default_model_matches_its_card(loaded: tuple[Bert, Tokenizer]) -> None:
    model, tokenizer = loaded
    config = model.config
    assert (config.num_hidden_layers, config.hidden_size, config.max_position_embeddings, config.vocab_size) == (
        8,
        384,
        512,
        tokenizer.size,
    )
    assert tokenizer.size >= 16_000 and tokenizer.encode("The END").ids == tokenizer.encode("the end").ids
    figures = json.loads((RESULTS / "regard-bert.json").read_text(encoding="utf-8"))
    predictions = predict_blanks(model, tokenizer, read_blanks(BLANKS))
    assert [prediction.rank for prediction in predictions] == [blank["rank"] for blank in figures["blanks"]]
    right = sum(prediction.rank is not None for prediction in predictions)
    assert right >= 15
    card = (builtin_folder(DEFAULT_MODEL) / "README.md").read_text(encoding="utf-8")
    assert f"{right} of 30" in card
    assert f"{figures['words_128']['accuracy']:.1%}" in card
    assert len(re.findall(r"^\| (?:\d+|-) \| .* _", card, flags=re.MULTILINE)) == 30


def test_transformers_loads_the_default_model_with_equal_outputs(loaded: tuple[Bert, Tokenizer]) -> None:
    transformers = pytest.importorskip("transformers")
    model, tokenizer = loaded
    peer = transformers.BertForPreTraining.from_pretrained(builtin_folder(DEFAULT_MODEL), dtype=torch.float32).eval()
    words = transformers.AutoTokenizer.from_pretrained(builtin_folder(DEFAULT_MODEL))
    first, second = "In winter the fields are [MASK] with snow.", "Nobody goes out."
    theirs = words(first, second, return_tensors="pt")
    ours = tokenizer.encode(first, second)
    assert theirs["input_ids"][0].tolist() == ours.ids
    with torch.no_grad():
        expected = peer(**theirs)
        hidden = model(theirs["input_ids"], segments=theirs["token_type_ids"])
        assert model.mlm_head is not None and model.pooler is not None and model.nsp_head is not None
        torch.testing.assert_close(model.mlm_head(hidden), expected.prediction_logits, atol=1e-4, rtol=1e-4)
        pooled = model.pooler(hidden, Padded())
        torch.testing.assert_close(model.nsp_head(pooled), expected.seq_relationship_logits, atol=1e-4, rtol=1e-4)


def test_transformers_loads_the_causal_lm_with_equal_outputs() -> None:
    transformers = pytest.importorskip("transformers")
    model, tokenizer = regard.load(DEFAULT_CAUSAL_LM)
    assert isinstance(model, Gpt) and tokenizer is not None
    folder = builtin_folder(DEFAULT_CAUSAL_LM)
    peer = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).eval()
    ids = transformers.AutoTokenizer.from_pretrained(folder)("The river begins in the mountains and").input_ids
    assert ids == tokenizer.encode("The river begins in the mountains and", add_special_tokens=False).ids
    with torch.no_grad():
        rows = torch.tensor([ids])
        torch.testing.assert_close(model.logits(model(rows)), peer(rows).logits, atol=1e-4, rtol=1e-4)


def test_the_causal_lm_matches_its_card() -> None:
    figures = json.loads((RESULTS / "regard-gpt.json").read_text(encoding="utf-8"))
    card = (builtin_folder(DEFAULT_CAUSAL_LM) / "README.md").read_text(encoding="utf-8")
    assert f"{figures['held_out']['bits_per_byte']:.3f}" in card
    sample = figures["samples"][0]
    generator = TextGenerator(*regard.load(DEFAULT_CAUSAL_LM))
    prompt = generator.encode_prompt(sample["prompt"], max_new_tokens=20)
    generated = "".join(
        text for _, text in GenerationStream(generator, prompt, sampling=Sampling(temperature=0.8, top_p=0.9), seed=0)
    )
    assert sample["text"].startswith(generated) and len(generated) > 20


def test_the_embedding_model_matches_its_card() -> None:
    models = json.loads((RESULTS / "regard-embed.json").read_text(encoding="utf-8"))["models"]
    ours, teacher = models[DEFAULT_EMBEDDING_MODEL], models["all-MiniLM-L6-v2"]
    assert ours["stsb"] >= 80 and ours["sst2 scaled"] >= 77
    assert ours["squad recall@1"] >= 0.85 * teacher["squad recall@1"]
    card = (builtin_folder(DEFAULT_EMBEDDING_MODEL) / "README.md").read_text(encoding="utf-8")
    assert all(f"| {ours[key]:.1f} | {teacher[key]:.1f} |" in card for key in ("stsb", "squad recall@1", "sst2"))


def test_sentence_transformers_loads_the_embedding_model_with_equal_vectors() -> None:
    peer = pytest.importorskip("sentence_transformers")
    texts = ["A man is playing a guitar.", "Someone plays an instrument.", "The bank raised its interest rate.", "?"]
    expected = peer.SentenceTransformer(
        str(builtin_folder(DEFAULT_EMBEDDING_MODEL)), device="cpu", model_kwargs={"dtype": torch.float32}
    ).encode(texts)
    vectors = regard.Embedder(device="cpu").transform(texts)
    torch.testing.assert_close(torch.from_numpy(vectors), torch.from_numpy(expected), atol=1e-5, rtol=0)
    similarities = vectors @ vectors.T
    assert similarities[0, 1] > 0.5 > 0.3 > similarities[0, 2]


@pytest.mark.parametrize("name", ["regard-de-en", "regard-fr-en"])
def test_the_translators_match_their_cards(name: str) -> None:
    figures = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    assert sum(file.stat().st_size for file in builtin_folder(name).iterdir()) <= 16e6
    lecture = figures["lecture"]
    translator = translate.load_translator(builtin_folder(name))
    found = translator.translate([lecture["sentence"]], beam=Beam(num_beams=5))[0][0]
    card = (builtin_folder(name) / "README.md").read_text(encoding="utf-8")
    assert found.text == lecture["translation"] and f'Its translation: "{found.text}"' in card
    assert f"| {figures['test']['bleu']:.1f} |" in card and "tatoeba.org" in card and "CC BY" in card
