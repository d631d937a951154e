"""One server process for all tests of this folder, with tiny models and a key."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.serve_process import ServerProcess, start_server

KEY = "the-key-of-the-tests"
EMBED, GPT, CLASSIFIER, RERANKER = "tiny-embed", "tiny-gpt", "tiny-classifier", "tiny-reranker"
CHAT = "tiny-chat"
PROMPTS = {"query": "they call: ", "document": "the film "}
TEXTS = ["the film was good", "a bad day", "they love it", "the water is hot", "people call him a lot"]


@pytest.fixture(scope="session")
def model_folders(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of an encoder, a GPT, a classifier of texts, a reranker and a chat model, by name."""
    import regard
    from regard.tasks.encoder_with_head import EncoderWithHead
    from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
    from regard.tasks.text_classification import PairClassification, TextClassification
    from tests.inference.generation.folders import chat_folder, gpt_folder

    root = tmp_path_factory.mktemp("served")
    shutil.copytree(tiny_bert_folder, root / EMBED)
    (root / EMBED / "config_sentence_transformers.json").write_text(json.dumps({"prompts": PROMPTS}))
    shutil.copytree(gpt_folder(root / "made", positions=128), root / GPT)
    shutil.copytree(chat_folder(root / "made-chat"), root / CHAT)
    encoder, tokenizer = regard.load(tiny_bert_folder)
    tasks = {
        CLASSIFIER: TextClassification(["bad", "good"]),
        RERANKER: PairClassification(["0", "1"], positive_label="1"),
    }
    for name, task in tasks.items():
        model = FineTunedModel(task, EncoderWithHead.from_encoder(encoder, task).eval(), tokenizer, 64)
        save_fine_tuned(model, root / name)
    return {name: root / name for name in (EMBED, GPT, CLASSIFIER, RERANKER, CHAT)}


@pytest.fixture(scope="session")
def server(model_folders: dict[str, Path]) -> Iterator[ServerProcess]:
    """A server of all models that needs a key."""
    with start_server([str(folder) for folder in model_folders.values()], token=KEY) as started:
        yield started
