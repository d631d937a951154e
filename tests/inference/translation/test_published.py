"""Marian and mBART folders as they are published: the translations are those of transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.inference.generation.beam_search import Beam
from regard.inference.translation.forced_decoding import force_targets
from regard.inference.translation.translator import (
    Translator,
    check_target_language,
    language_codes,
    load_translator,
    with_languages,
)
from regard.interpret.attention.recording import record_attention
from regard.interpret.figure.figure import figure_of
from regard.interpret.translation import translate_in_steps
from tests.parity.references import randomized
from tests.text.sentencepieces import NUM_TRAINED, marian_files, sentences, train

TEXTS = ["I am a student.", "Where is the station?", "Tom wants to go home and sleep."]
SHAPE = {
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "max_position_embeddings": 64,
    "scale_embedding": True,
    "forced_eos_token_id": None,
}
Published = tuple[Path, Any]


@pytest.fixture(scope="module")
def pairs(shared_data: Callable[[str], Path]) -> tuple[list[str], list[str]]:
    english, french = sentences(shared_data("tatoeba-en-fr/fra-eng.zip"))
    return english[:NUM_TRAINED], french[:NUM_TRAINED]


@pytest.fixture(scope="module")
def marian(pairs: tuple[list[str], list[str]], tmp_path_factory: pytest.TempPathFactory) -> Published:
    folder = tmp_path_factory.mktemp("opus-mt")
    vocabulary = marian_files(folder, *pairs)
    padding = vocabulary["<pad>"]
    config = transformers.MarianConfig(
        **SHAPE,
        vocab_size=len(vocabulary),
        activation_function="swish",
        pad_token_id=padding,
        decoder_start_token_id=padding,
        eos_token_id=0,
    )
    model = randomized(transformers.MarianMTModel(config))
    model.final_logits_bias[0, padding] = 5.0  # the likeliest token, which must not be generated
    model.generation_config.bad_words_ids = [[padding]]
    model.save_pretrained(folder)
    return folder, model


def mbart(folder: Path, pairs: tuple[list[str], list[str]], kind: str) -> Published:
    train(folder / "sentencepiece.bpe.model", [*pairs[0], *pairs[1]])
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, "src_lang": "en_XX"}))
    size = 600 + 1 + (52 if kind == "MBart50Tokenizer" else 25) + 1
    model = randomized(transformers.MBartForConditionalGeneration(transformers.MBartConfig(**SHAPE, vocab_size=size)))
    model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = 2
    model.save_pretrained(folder)
    return folder, model


def their_tokens(model: Any, ids: list[int], **settings: Any) -> list[int]:
    """The tokens that transformers generates, without the end token."""
    with torch.no_grad():
        found = model.generate(
            torch.tensor([ids]), do_sample=False, max_new_tokens=2 * len(ids) + 10, **{"num_beams": 4} | settings
        )[0, 1:].tolist()
    end = model.config.eos_token_id
    return found[: found.index(end)] if end in found else found


def our_tokens(translator: Translator, text: str) -> list[int]:
    return list(translator.translate([text], beam=Beam(num_beams=4))[0][0].ids)


@pytest.mark.filterwarnings("ignore")
def test_marian_translations(marian: Published) -> None:
    folder, model = marian
    translator, tokenizer = load_translator(folder), transformers.MarianTokenizer.from_pretrained(folder)
    found = set()
    for text in TEXTS:
        ids = their_tokens(model, tokenizer(text).input_ids)
        found.add(tuple(ids))
        assert our_tokens(translator, text) == ids and tokenizer.pad_token_id not in ids
        assert translator.translate([text], beam=Beam(num_beams=4))[0][0].text == tokenizer.decode(
            ids, skip_special_tokens=True
        )
        greedy = their_tokens(model, tokenizer(text).input_ids, num_beams=1)
        assert list(translator.translate([text])[0][0].ids) == greedy
    assert len(found) > 1, "every text has the same translation: nothing is compared"
    french = with_languages(translator, tgt_lang="fra")
    prefixed = their_tokens(model, tokenizer(f">>fra<< {TEXTS[0]}").input_ids)
    assert our_tokens(french, TEXTS[0]) == prefixed == our_tokens(translator, f">>fra<< {TEXTS[0]}")


def test_marian_in_all_views(marian: Published, tmp_path: Path) -> None:
    folder, _ = marian
    translator = load_translator(folder)
    (forced,) = force_targets(translator, TEXTS[0], ["Je suis un étudiant."])
    assert forced.alignment is not None and forced.alignment.source == TEXTS[0].split()
    assert all(sum(row) == pytest.approx(1) for row in forced.alignment.weights)
    steps = translate_in_steps(translator, TEXTS[0])
    assert steps.source.words == TEXTS[0].split() and steps.encoder is not None
    record = record_attention(translator.model, translator.subwords, TEXTS[0])
    assert [maps.kind for maps in record.maps] == ["encoder", "decoder", "cross"]
    drawn = figure_of(LoadedModel("", translator.model, translator.subwords), TEXTS[0], ablation=False)
    assert max(box.difference for box in drawn.boxes) < 1e-5
    result = regard.translate(str(folder), TEXTS)
    assert len(result.texts) == len(TEXTS)
    page = regard.translate(str(folder), TEXTS[0], num_beams=1, steps=True)
    assert "Tom" not in page.to_html() and "student" in page.to_html()
    model, tokenizer = regard.load(folder)
    regard.save(model, tmp_path, tokenizer)
    assert load_translator(tmp_path).translate(TEXTS) == translator.translate(TEXTS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["MBartTokenizer", "MBart50Tokenizer"])
def test_mbart_languages(kind: str, pairs: tuple[list[str], list[str]], tmp_path: Path) -> None:
    folder, model = mbart(tmp_path, pairs, kind)
    tokenizer = getattr(transformers, kind).from_pretrained(folder, src_lang="de_DE")
    plain = load_translator(folder)
    assert len(language_codes(plain)) == (52 if kind == "MBart50Tokenizer" else 25)
    with pytest.raises(InputError, match="choose one with tgt_lang"):
        check_target_language(plain)
    translator = with_languages(plain, "de_DE", "fr_XX")
    check_target_language(translator)
    target = tokenizer.convert_tokens_to_ids("fr_XX")
    first = {"forced_bos_token_id": target} if kind == "MBart50Tokenizer" else {"decoder_start_token_id": target}
    for text in TEXTS:
        ids = tokenizer(text).input_ids
        assert translator.subwords.encode_sources([text])[0] == ids
        assert our_tokens(translator, text) == their_tokens(model, ids, **first)
    aligned = translator.align(TEXTS[0], translator.encode_translation("Je suis ici."))
    assert (aligned.source, aligned.target) == (TEXTS[0].split(), ["Je", "suis", "ici."])
    assert plain.model.begin == 2 and plain.model.forced_first is None
    with pytest.raises(InputError, match=r"unknown tgt_lang 'fr_FR'.*fr_XX"):
        with_languages(plain, tgt_lang="fr_FR")


def test_languages_of_a_translator_of_two(marian: Published) -> None:
    translator = load_translator(marian[0])
    assert translator.subwords.unknown_characters(f"{TEXTS[0]} 😀")[0] == "😀"
    with pytest.raises(InputError, match="recognizes the source language"):
        with_languages(translator, "en_XX")
    with pytest.raises(InputError, match="one pair of languages"):
        with_languages(load_translator("regard-fr-en"), tgt_lang="en_XX")
