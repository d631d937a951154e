"""Training the built-in translators at a small size: held-out data, scores, files and output."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import torch

from benchmarks import tatoeba
from regard.inference.translation.translator import load_translator
from tests.inference.translation.conftest import SMALL, sentences

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "tatoeba-en-de"
    folder.mkdir(parents=True)
    pairs = [f"{pair.source}\t{pair.target}" for pair in sentences(80)]
    with zipfile.ZipFile(folder / "deu-eng.zip", "w") as archive:
        archive.writestr("deu.txt", "\n".join([*pairs, "I have to go.\tIch muss auf den Markt gehen."]))
        archive.writestr("_about.txt", "who made it")
    return folder.parent


def test_the_folder_and_its_model_card(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["de-en", "--data", str(data), "--output", str(tmp_path / "regard-de-en"), "--device", "cpu"]
    tatoeba.main([*arguments, "--held-out", "10", "--set", *SMALL])
    figures = json.loads(capsys.readouterr().out)
    assert figures["pairs"] == {"train": 64, "dev": 7, "test": 10} and figures["test"]["beam"] == 5
    assert sum(map(len, figures["lecture"]["stands"].values())) == 1
    folder = tmp_path / "regard-de-en"
    assert figures["bytes"] == sum(file.stat().st_size for file in folder.iterdir()) < 1e6
    card = (folder / "README.md").read_text(encoding="utf-8")
    headings = ("# regard-de-en", "## Evaluation", "## Training data", "## Training\n", "## Limitations")
    for text in (*headings, "CC BY 2.0 FR", "tatoeba.org"):
        assert text in card
    assert "{" not in card and f"| {figures['test']['bleu']:.1f} |" in card and figures["test"]["signature"] in card
    in_training_data = bool(figures["lecture"]["stands"]["train"])
    assert ('gehen." is in the training data, as "I have to go."' in card) == in_training_data
    translator = load_translator(folder)
    assert {parameter.dtype for parameter in translator.model.parameters()} == {torch.float32}
    assert '"float16"' in (folder / "config.json").read_text()
    lecture = figures["lecture"]
    assert (
        translator.translate([lecture["sentence"]], beam=tatoeba.Beam(num_beams=5))[0][0].text == lecture["translation"]
    )


def test_a_finished_run_in_eight_bits(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import regard

    lstm = ["model.family=lstm", "model.embedding_size=16", *SMALL]
    table = {"train": [str(data / "tatoeba-en-de" / "deu-eng.zip")], "columns": ["1", "0"], "device": "cpu"}
    run, output = tmp_path / "run", tmp_path / "regard-de-en-postnorm"
    regard.train_translator(**table, hold_out=10, settings=lstm, output=str(run))
    capsys.readouterr()
    arguments = ["de-en-postnorm", "--data", str(data), "--from-run", str(run), "--device", "cpu"]
    tatoeba.main([*arguments, "--output", str(output), "--held-out", "10"])
    results = json.loads(capsys.readouterr().out)
    assert results["storage"] == "int8" and results["test"]["bleu"] == pytest.approx(results["test_float32"], abs=15)
    assert results["bytes"] < sum(file.stat().st_size for file in run.iterdir() if file.suffix != ".jsonl")
    card = (output / "README.md").read_text(encoding="utf-8")
    assert "an LSTM with attention" in card and "stored in 8 bits" in card and "{" not in card
    assert not (output / "report.json").exists() and load_translator(output).translate(["x"])
    with pytest.raises(SystemExit, match="held out other pairs"):
        tatoeba.main([*arguments, "--output", str(tmp_path / "other"), "--held-out", "12"])


def test_a_model_that_is_too_large_is_rejected(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tatoeba, "MAX_BYTES", 1000)
    arguments = ["de-en", "--data", str(data), "--output", str(tmp_path / "x"), "--device", "cpu", "--held-out", "10"]
    with pytest.raises(SystemExit, match=r"bytes, more than 1,000: use a smaller"):
        tatoeba.main([*arguments, "--set", *SMALL])


def test_the_configured_model_is_small_enough(tmp_path: Path) -> None:
    """Computed without training: half precision takes two bytes per parameter."""
    from regard.models import Transformer, TransformerConfig
    from regard.training.recipes.translation.config import TranslationConfig

    settings = TranslationConfig.read(tatoeba.ROOT / "configs" / "tatoeba.toml")
    model = settings.model
    config = TransformerConfig(
        vocab_size=settings.vocabulary.vocab_size,
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_hidden_layers,
        num_attention_heads=model.num_attention_heads,
        intermediate_size=model.intermediate_size,
        share_embeddings=True,
        norm_first=True,
        final_norm=True,
    )
    count = sum(parameter.numel() for parameter in Transformer(config).parameters())
    assert 7_000_000 < count < 7_650_000, count  # the tokenizer takes half a megabyte more
