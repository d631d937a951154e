"""Token ids outside the vocabulary: an error that names them and the size of the vocabulary."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import regard
from regard.cli.app import run
from regard.errors import InputError
from regard.models import T5, Bert, BertConfig, Elmo, ElmoConfig, Gpt, GptConfig, Seq2Seq, Seq2SeqConfig, T5Config
from regard.nn.masks import Padded

WIDTH: dict[str, Any] = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16, "num_hidden_layers": 1}
MODELS: dict[str, Callable[[], nn.Module]] = {
    "bert": lambda: Bert(BertConfig(vocab_size=20, max_position_embeddings=16, **WIDTH)),
    "gpt": lambda: Gpt(GptConfig(vocab_size=20, max_position_embeddings=16, **WIDTH)),
    "t5": lambda: T5(T5Config(vocab_size=20, num_decoder_layers=1, head_dim=4, **WIDTH)),
    "elmo": lambda: Elmo(ElmoConfig(vocab_size=20, num_characters=0, hidden_size=8, cell_size=16)),
    "seq2seq": lambda: Seq2Seq(Seq2SeqConfig(source_size=20, target_size=20, embedding_size=8, hidden_size=8)),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("bad", [20, 999, -1])
def test_ids_outside_the_vocabulary_are_named(kind: str, bad: int) -> None:
    model = MODELS[kind]().eval()
    ids = torch.tensor([[1, 2, bad, 3]])
    call = {"seq2seq": lambda: model(ids, steps=1), "t5": lambda: model(ids, torch.tensor([[1]]))}
    with pytest.raises(InputError, match=rf"(?s){bad}\b.*\b20\b"):
        call.get(kind, lambda: model(ids, Padded()))()


@pytest.fixture
def larger(tiny_bert_folder: Path, tmp_path: Path) -> tuple[Path, int]:
    """A model folder whose tokenizer has one more word than the model."""
    folder = tmp_path / "larger"
    shutil.copytree(tiny_bert_folder, folder)
    for name in ("checksums.json", "vocab.txt"):
        (folder / name).unlink()
    path = folder / "tokenizer.json"
    document = json.loads(path.read_bytes())
    size = len(document["model"]["vocab"])
    document["model"]["vocab"]["zebra"] = size
    path.write_text(json.dumps(document), encoding="utf-8")
    return folder, size


def test_a_tokenizer_larger_than_its_model(larger: tuple[Path, int], tmp_path: Path) -> None:
    folder, size = larger
    _, tokenizer = regard.load(folder)
    assert tokenizer is not None
    assert tokenizer.encode("a film").ids  # tokens inside the vocabulary work
    named = rf"(?s)'zebra'.*\b{size}\b"
    for encode in (tokenizer.encode, lambda text: tokenizer.ids_batch([text])):
        with pytest.raises(InputError, match=named):
            encode("a zebra")


def test_a_verb_names_the_token(larger: tuple[Path, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, size = larger
    (tmp_path / "a.txt").write_text("a film\na zebra\n", encoding="utf-8")
    arguments = ["embed", tmp_path / "a.txt", "-o", tmp_path / "a.npy", "-m", folder, "--device", "cpu"]
    assert run([str(one) for one in arguments]) == 2
    message = capsys.readouterr().err
    assert "'zebra'" in message and str(size) in message and message.count("error") == 1
