"""The built-in fine-tuned models at a small size: the split of texts, 8 bits, the model card, and finished runs."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import pytest
import torch

from benchmarks import builtin_tasks
from regard.tasks.fine_tuned_model import load_fine_tuned

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = ["vision.hidden_size=16", "vision.num_hidden_layers=1", "vision.intermediate_size=16", "training.num_epochs=1"]


def write_images(folder: Path, name: str, count: int) -> None:
    digits = torch.arange(count) % 10
    images = torch.zeros(count, 28, 28, dtype=torch.uint8)
    for image, digit in zip(images, digits.tolist(), strict=True):
        image[2 * digit : 2 * digit + 6] = 200
    for what, data, header in (
        ("images-idx3", images, struct.pack(">IIII", 2051, count, 28, 28)),
        ("labels-idx1", digits.to(torch.uint8), struct.pack(">II", 2049, count)),
    ):
        (folder / f"{name}-{what}-ubyte.gz").write_bytes(gzip.compress(header + data.numpy().tobytes()))


def test_the_digits_in_eight_bits_and_a_finished_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mnist").mkdir()
    write_images(tmp_path / "mnist", "train", 200)
    write_images(tmp_path / "mnist", "t10k", 40)
    output, run = tmp_path / "regard-digits", tmp_path / "run"
    common = ["digits", "--data", str(tmp_path), "--output", str(output), "--device", "cpu"]
    builtin_tasks.main([*common, "--work", str(run), "--set", *SMALL])
    results = json.loads(capsys.readouterr().out)
    assert results["examples"] == {"train": 200, "dev": 40, "test": 40}
    assert results["test"]["accuracy"] == pytest.approx(results["test_float32"]["accuracy"], abs=10)
    assert results["bytes"] == sum(file.stat().st_size for file in output.iterdir())
    stored = {parameter.dtype for parameter in load_fine_tuned(output).model.parameters()}
    assert stored == {torch.float32} and '"regard-int8"' in (output / "config.json").read_text()
    card = (output / "README.md").read_text(encoding="utf-8")
    headings = ("# regard-digits", "## Evaluation", "## Training data", "## Training\n", "## Limitations")
    for text in (*headings, "CC BY-SA 3.0", f"| accuracy | {results['test']['accuracy']:.2f} |"):
        assert text in card
    assert "{" not in card
    first = (output / "model.safetensors").read_bytes()
    builtin_tasks.main([*common, "--from-run", str(run)])
    assert json.loads(capsys.readouterr().out)["test"] == results["test"]
    assert (output / "model.safetensors").read_bytes() == first
    write_images(tmp_path / "mnist", "t10k", 30)
    with pytest.raises(SystemExit, match="trained on other data"):
        builtin_tasks.main([*common, "--from-run", str(run)])


def test_texts_are_split_without_duplicates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sms-spam").mkdir()
    lines = [f"{'spam' if number % 3 else 'ham'}\tmessage  {number}" for number in range(40)]
    (tmp_path / "sms-spam" / "SMSSpamCollection").write_text("\n".join([*lines, "ham\tMESSAGE 7", "ham\t "]))
    builtin_tasks.main(["spam", "--data", str(tmp_path), "--files", str(tmp_path / "files")])
    files = [Path(line) for line in capsys.readouterr().out.splitlines()]
    rows = [file.read_text().splitlines()[1:] for file in files]
    assert list(map(len, rows)) == [32, 4, 4]
    texts = {row.split("\t")[0] for part in rows for row in part}
    assert texts == {f"message {number}" for number in range(40)}


def test_a_model_of_the_first_layers(tmp_path: Path) -> None:
    from regard.checkpoints.loading import load

    builtin_tasks.truncate(tmp_path, layers=1)
    whole, first = load("regard-bert")[0].state_dict(), load(tmp_path)[0].state_dict()
    assert any("pooler" in name for name in first) and len(first) < len(whole)
    assert all(torch.equal(tensor, whole[name]) for name, tensor in first.items())
