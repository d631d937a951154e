"""A model in its own process: answers, a crash, and a model that cannot be loaded."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.errors import RegardError
from regard.server.errors import RequestError
from regard.server.models import process as model_process
from regard.server.models.process import ModelProcess
from regard.server.models.registry import ModelOptions, ModelRegistry, model_ids
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
from regard.tasks.text_classification import TextClassification
from tests.server.coroutines import run_coroutine

OPTIONS = {"threads": 1, "device": "cpu", "precision": None, "max_batch_tokens": 0, "local": False}


def setup(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "path": path, "lane": "serving", **OPTIONS}


def embedding(*texts: str) -> dict[str, Any]:
    return {"inputs": list(texts), "truncate": True, "normalize": False, "param": "inputs"}


def test_answers_a_crash_and_a_restart(tiny_bert_folder: Path) -> None:
    events: list[str] = []

    async def run() -> None:
        process = ModelProcess(
            "tiny", setup("tiny", str(tiny_bert_folder)), on_event=lambda event: events.append(str(event["event"]))
        )
        await process.start()
        try:
            replies = await asyncio.gather(*(process.call(str(n), "embed", embedding("a good day")) for n in range(20)))
            expected = regard.Embedder(str(tiny_bert_folder)).transform(["a good day"])
            for (data, width), timing in replies:
                vectors = np.frombuffer(data, dtype=np.float32).reshape(-1, width)
                np.testing.assert_allclose(vectors, expected, atol=1e-5)
                assert timing.tokens > 3
            with pytest.raises(RequestError, match="at most") as error:
                await process.call("a", "embed", {**embedding("a " * 5000), "truncate": False})
            assert error.value.status == 413
            waiting = [
                asyncio.ensure_future(process.call("a", "embed", embedding(*["a good day"] * 500))) for _ in range(30)
            ]
            await asyncio.sleep(0)
            pid = process.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            answers = await asyncio.gather(*waiting, return_exceptions=True)
            lost = [one for one in answers if isinstance(one, RequestError)]
            assert lost and all(one.status == 503 for one in lost)
            with pytest.raises(RequestError, match="started again"):
                await process.call("a", "embed", embedding("a"))
            async with asyncio.timeout(60):
                while process.state != "ready":
                    await asyncio.sleep(0.05)
            assert process.pid != pid and process.in_flight == 0 and process.restarts == 1
            await process.call("a", "embed", embedding("a"))
        finally:
            process.close()

    run_coroutine(run())
    assert events == ["model_started", "model_ended", "model_started"]


BUSY = """
import sys

def patch():
    import regard.server.models.services as services
    compute = services.EmbeddingService.compute

    def hang(self, contents):
        while len(contents[0][1]) > 40:
            pass
        return compute(self, contents)

    services.EmbeddingService.compute = hang

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "regard.server.models.served_model":
            sys.meta_path.remove(self)
            patch()

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.long
@pytest.mark.parametrize("how", ["stopped", "busy"])
def test_a_stuck_process_is_started_again(
    how: str, tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`busy`: a batch of more than 40 texts never ends."""
    (tmp_path / "sitecustomize.py").write_text(BUSY)
    monkeypatch.syspath_prepend(str(tmp_path))
    events: list[str] = []

    async def run() -> None:
        process = ModelProcess(
            "tiny",
            setup("tiny", str(tiny_bert_folder)),
            stuck_seconds=3.0,
            on_event=lambda event: events.append(str(event["event"])),
        )
        await process.start()
        try:
            pid = process.pid
            assert pid is not None
            await process.call("a", "embed", embedding("a"))
            if how == "stopped":
                os.kill(pid, signal.SIGSTOP)
            with pytest.raises(RequestError, match="ended unexpectedly") as error:
                async with asyncio.timeout(60):
                    await process.call("a", "embed", embedding(*["a"] * 64))
            assert error.value.status == 503
            async with asyncio.timeout(60):
                while process.state != "ready":
                    await asyncio.sleep(0.05)
            assert process.pid != pid and process.restarts == 1
            await process.call("a", "embed", embedding("a"))
        finally:
            process.close()

    run_coroutine(run())
    assert events == ["model_started", "model_stuck", "model_ended", "model_started"]


@pytest.mark.long
def test_an_idle_process_that_has_grown_too_large_is_replaced(
    tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that serves ends when its successor is ready: every request is answered. One for verbs ends at once."""
    monkeypatch.setattr(model_process, "CHECK_SECONDS", 0.05)
    events: list[str] = []

    async def run() -> None:
        models = ModelRegistry(
            [f"tiny={tiny_bert_folder}"],
            ModelOptions(threads=1, device="cpu"),
            stuck_seconds=60,
            on_event=lambda event: events.append(str(event["event"])),
        )
        await models.start()
        try:
            async with asyncio.timeout(60):
                (first,) = models.serving()
                monkeypatch.setattr(model_process, "MAX_GROWTH_BYTES", -1)
                while "model_large" not in events:
                    await asyncio.sleep(0.01)
                monkeypatch.setattr(model_process, "MAX_GROWTH_BYTES", 1 << 40)
                while first.state != "closed":
                    await models.serving()[0].call("a", "embed", embedding("a"))
                assert models.serving()[0] is not first
                verbs = await models.process("tiny", "verbs")
                assert await models.process("tiny", "verbs") is verbs
                monkeypatch.setattr(model_process, "MAX_GROWTH_BYTES", -1)
                while verbs.state != "closed":
                    await asyncio.sleep(0.01)
                monkeypatch.setattr(model_process, "MAX_GROWTH_BYTES", 1 << 40)
                assert (await models.process("tiny", "verbs")).state == "ready"
        finally:
            models.close()

    run_coroutine(run())
    assert "model_ended" not in events and "model_stuck" not in events


def test_a_model_that_cannot_be_loaded_is_one_clear_line(tmp_path: Path) -> None:
    async def run() -> None:
        models = ModelRegistry([f"lost={tmp_path / 'nothing'}"], ModelOptions(device="cpu"))
        try:
            await models.start()
        finally:
            assert all(process.state == "closed" for process in models.serving()) and models.serving()

    with pytest.raises(RegardError, match="lost cannot be served") as error:
        run_coroutine(run())
    assert "\n" not in str(error.value)


def test_models_are_called_by_folder_or_by_the_given_name(tmp_path: Path) -> None:
    (tmp_path / "one" / "model").mkdir(parents=True)
    (tmp_path / "two" / "model").mkdir(parents=True)
    one, two = str(tmp_path / "one" / "model"), str(tmp_path / "two" / "model")
    assert model_ids([one, f"other={two}", "regard-bert"]) == {"model": one, "other": two, "regard-bert": "regard-bert"}
    (tmp_path / "small.gguf").touch()
    assert model_ids([str(tmp_path / "small.gguf")]) == {"small.gguf": str(tmp_path / "small.gguf")}
    with pytest.raises(RegardError, match="would both be called 'model'; give one of them as NAME="):
        model_ids([one, two])


def test_a_folder_whose_settings_are_not_followed_is_not_served(tiny_bert_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    shutil.copytree(tiny_bert_folder, folder)
    settings = {"similarity_fn_name": "jaccard"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))

    async def run() -> None:
        with pytest.raises(RegardError, match=r"cannot be served: .*similarity_fn_name is 'jaccard'"):
            await ModelProcess("prompts", setup("prompts", str(folder))).start()

    run_coroutine(run())


def test_the_log_says_that_embeddings_have_no_task_head(tiny_bert_folder: Path, tmp_path: Path) -> None:
    task, (encoder, tokenizer) = TextClassification(["bad", "good"]), regard.load(tiny_bert_folder)
    model = EncoderWithHead.from_encoder(encoder, task).eval()
    save_fine_tuned(FineTunedModel(task, model, tokenizer, 64), tmp_path / "classifier")
    events: list[Any] = []

    async def run() -> None:
        path = str(tmp_path / "classifier")
        process = ModelProcess("classifier", setup("classifier", path), on_event=events.append)
        await process.start()
        process.close()

    run_coroutine(run())
    assert events[0]["event"] == "model_started" and "without the task head" in events[0]["note"]
