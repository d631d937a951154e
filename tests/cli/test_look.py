"""`regard look`: pages, drawings, the JSON document, the table and messages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.cli.app import run
from regard.inference.load_model import load_model
from regard.interpret.attention.recording import record_attention
from regard.models import Vit, VitConfig

Captured = pytest.CaptureFixture[str]
Call = Callable[..., int]


@pytest.fixture
def call(tiny_bert_folder: Path) -> Call:
    def regard_look(*arguments: str) -> int:
        return run(["look", *arguments, "--model", str(tiny_bert_folder)])

    return regard_look


def test_the_json_document(call: Call, tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call("the film", "was good", "--layer", "2", "--head", "2", "--json") == 0
    out, error = capsys.readouterr()
    document = json.loads(out)
    found = record_attention(*load_model(tiny_bert_folder), "the film", "was good")
    assert list(document) == ["model", "family", "texts", "truncated", "notes", "grid", "maps"]
    assert document["texts"] == ["the film", "was good"]
    assert (document["maps"][0]["layers"], document["maps"][0]["heads"]) == ([2], [2])
    np.testing.assert_allclose(document["maps"][0]["weights"][0][0], found.maps[0].weights[1, 2], atol=1e-6)
    assert error == ""


def test_the_table(call: Call, tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call("the film was good") == 0
    lines = capsys.readouterr().out.splitlines()
    weights = record_attention(*load_model(tiny_bert_folder), "the film was good").maps[0].weights[-1].mean(0)
    assert lines[0].startswith("encoder attention of bert, layer 2, mean of all heads")
    tokens = ["[CLS]", "the", "film", "was", "good", "[SEP]"]
    for line, token, row in zip(lines[2:], tokens, weights, strict=True):
        assert line.split() == [token, f"{row.max():.1%}", tokens[int(row.argmax())]]


@pytest.mark.parametrize("chosen", [[], ["--layer", "1"], ["--layer", "1", "--head", "3"]])
def test_drawings(call: Call, tmp_path: Path, capsys: Captured, chosen: list[str], page_built: None) -> None:
    for name in ("a.svg", "a.PNG"):
        assert call("the film was good", *chosen, "--output", str(tmp_path / name)) == 0
        assert capsys.readouterr() == (f"{tmp_path / name}\n", "")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<svg")
    with Image.open(tmp_path / "a.PNG") as image:
        assert image.width > 300


def test_the_page(call: Call, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.render import bundle

    monkeypatch.setattr(bundle, "page", lambda payload, title: json.dumps(payload))
    assert call("the film </script>", "--layer", "-1", "--output", str(tmp_path / "a.html")) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'a.html'}\n"
    payload = json.loads((tmp_path / "a.html").read_text(encoding="utf-8"))
    assert (payload["view"], payload["texts"]) == ("attention", ["the film </script>"])
    assert payload["place"] == "#attention?layer=2&heads=all"
    assert payload["maps"][0]["layers"] == 2


def test_a_long_text_is_truncated_with_a_note(call: Call, tmp_path: Path, capsys: Captured, page_built: None) -> None:
    assert call("film " * 200, "--output", str(tmp_path / "a.svg")) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert re.findall(r"\d+", line) == ["74", "128"] and "truncated" in line


def test_an_image(tmp_path: Path, capsys: Captured, page_built: None) -> None:
    torch.manual_seed(0)
    shape = VitConfig(
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=8,
        image_size=(8, 8),
        patch_size=(4, 4),
        num_labels=2,
    )
    regard.save(Vit(shape), tmp_path / "vit")
    Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save(tmp_path / "cat.png")
    arguments = ["look", "--image", str(tmp_path / "cat.png"), "--model", str(tmp_path / "vit")]
    assert run([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["grid"] == [2, 2]
    assert document["maps"][0]["rows"]["tokens"] == ["[CLS]", "1,1", "1,2", "2,1", "2,2"]
    assert run([*arguments, "--output", str(tmp_path / "out.svg")]) == 0
    assert (tmp_path / "out.svg").read_text().count("<use") == 4 + 1  # every head, and the first again at full size
    assert run([*arguments, "a text"]) == 2
    assert "leave the text out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the text is empty"),
        (["  "], "the text is empty"),
        (["a", ""], "the second text is empty"),
        (["a", "--layer", "3"], "no layer 3: this model's encoder attention has layers 1 to 2"),
        (["a", "--layer", "0"], "0 is the embeddings, which have no attention"),
        (["a", "--layer", "-3"], "no layer -3"),
        (["a", "--layer", "1", "--head", "4"], "no head 4: this model's encoder attention has heads 0 to 3"),
        (["a", "--head", "0"], "head is 0, but no layer is given"),
        (["a", "--kind", "cross"], "no cross attention in this bert model; it has encoder"),
        (["a", "--kind", "nonsense"], "--kind"),
        (["--image", "nowhere.png"], "nowhere.png: no such file; expected an image"),
    ],
)
def test_invalid_input_is_a_one_line_error(arguments: list[str], message: str, call: Call, capsys: Captured) -> None:
    assert call(*arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_failure_leaves_no_file(call: Call, tmp_path: Path) -> None:
    assert call("a", "--layer", "7", "--output", str(tmp_path / "a.svg")) == 2
    assert list(tmp_path.iterdir()) == []
