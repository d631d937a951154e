"""Forced decoding: the log-probabilities of the search, the attention of a decoding, and refused input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import InputError
from regard.inference.translation.forced_decoding import MAX_TARGETS, MAX_TOKENS, force_targets
from regard.inference.translation.translator import Translator, load_translator
from regard.interpret.translation import replay_translations, translate_in_steps

TEXT = "the small dog sleeps"


@pytest.fixture(params=["transformer", "lstm"])
def translator(request: pytest.FixtureRequest, folders: dict[str, Path], randomized: Callable[..., Any]) -> Translator:
    found = load_translator(folders[request.param])
    randomized(found.model)
    return found


def test_log_probabilities_are_those_of_decoding_step_by_step(translator: Translator) -> None:
    """The decoder reads one token at a time and uses its cache, as a search does."""
    [forced] = force_targets(translator, TEXT, ["der kleine Hund schläft"])
    source = torch.tensor(translator.subwords.encode_sources([TEXT]))
    expected = []
    with torch.inference_mode():
        logits, state = translator.model.start(source)
        for token in (*forced.translation.ids, translator.subwords.end):
            expected.append(float(logits[0].double().log_softmax(-1)[token]))
            logits, state = translator.model.step(torch.tensor([token]), state)
    assert [token.log_probability for token in forced.tokens] == pytest.approx(expected, abs=1e-5)
    assert forced.translation.log_probability == pytest.approx(sum(expected), abs=1e-4)
    assert forced.translation.score == pytest.approx(sum(expected) / len(expected), abs=1e-5)


def test_a_forced_target_has_the_alignment_of_its_decoding(translator: Translator) -> None:
    [forced] = force_targets(translator, TEXT, ["der kleine Hund schläft"])
    assert forced.alignment == translator.align(TEXT, forced.translation.ids)
    assert forced.alignment is not None and forced.hard is not None
    for row, best in zip(forced.alignment.weights, forced.hard, strict=True):
        assert sum(row) == pytest.approx(1) and row[best] == max(row)
    assert all(token.log_probability <= 0 for token in forced.tokens)
    assert [token.token for token in forced.tokens][-1] == "<|endoftext|>"
    assert len(forced.tokens) == len(forced.translation.ids) + 1


def test_the_greedy_translation_forced_has_the_attention_of_the_greedy_decoding(translator: Translator) -> None:
    decoded = translate_in_steps(translator, TEXT)
    [one] = decoded.hypotheses
    replayed = replay_translations(translator, TEXT, [one.translation], forced=True)
    assert replayed.forced and not decoded.forced
    assert one.attention is not None and replayed.hypotheses[0].attention is not None
    assert (one.attention.weights == replayed.hypotheses[0].attention.weights).all()
    assert one.steps == replayed.hypotheses[0].steps


def test_a_recurrent_encoder_reads_the_source_in_time_steps(folders: dict[str, Path]) -> None:
    for name in ("lstm", "transformer"):
        found = translate_in_steps(load_translator(folders[name]), TEXT)
        assert found.time_steps_read == (len(TEXT.split()) if name == "lstm" else 0)
        assert found.alignment_heads is not None and found.alignment_heads.sharpest in found.alignment_heads.heads


@pytest.mark.parametrize(
    ("text", "targets", "message"),
    [
        (TEXT, [" "], "the target is empty; expected a sentence"),
        ("", ["Hund"], "the text is empty"),
        (TEXT, ["Hund"] * (MAX_TARGETS + 1), f"{MAX_TARGETS + 1} targets for one text; expected at most {MAX_TARGETS}"),
        (TEXT, ["Hund " * MAX_TOKENS], f"tokens; expected at most {MAX_TOKENS}"),
    ],
)
def test_invalid_targets_are_refused(folders: dict[str, Path], text: str, targets: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        force_targets(load_translator(folders["lstm"]), text, targets)


def test_the_verb_scores_targets_of_one_text_only(folders: dict[str, Path], tmp_path: Path) -> None:
    model = str(folders["lstm"])
    found = regard.translate(model, TEXT, target=["der Hund", "ein Hund"], alignments=tmp_path / "hard.txt")
    assert found.targets is not None
    assert [one.translation for one in found.targets] == found.texts[0].translations
    hard = [" ".join(f"{i}-{j}" for j, i in enumerate(one.hard or ())) for one in found.targets]
    assert (tmp_path / "hard.txt").read_text(encoding="utf-8").splitlines() == hard
    assert "Hard alignment: der ←" in found.to_text() and "ids" not in found.to_dict()["targets"][0]["translation"]
    with pytest.raises(InputError, match="--target is for one text, and the input has several"):
        regard.translate(model, [TEXT, TEXT], target=["der Hund"])
    with pytest.raises(InputError, match="--trace needs a search, and --target gives the translation"):
        regard.translate(model, TEXT, target=["der Hund"], trace=tmp_path / "trace.json")
