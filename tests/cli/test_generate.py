"""`regard generate`: texts, settings, traces, pages and interruption."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.cli.app import run
from regard.events import drain
from regard.generation_config import GenerationConfig
from regard.inference.generation.beam_search import Beam
from regard.inference.generation.sampling import Sampling
from regard.inference.generation.text_generator import GenerationStream, TextGenerator, TextStream
from regard.inference.load_model import load_model
from regard.interpret.generation import Generation
from tests.heartbeat import without_heartbeat
from tests.inference.generation.folders import chat_folder, gpt_folder, t5_folder

Captured = pytest.CaptureFixture[str]
Call = Callable[..., int]


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpt_folder(tmp_path_factory.mktemp("gpt"))


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return t5_folder(tmp_path_factory.mktemp("t5"))


@pytest.fixture
def call(t5: Path) -> Call:
    """Run `regard generate` in this process, with the tiny T5 unless another model is given."""

    def regard_generate(*arguments: str, model: Path = t5) -> int:
        return run(["generate", *arguments, "--model", str(model)])

    return regard_generate


def texts(folder: Path, prompt: str, *, sampling: Sampling | None, seed: int, number: int = 1) -> list[str]:
    writer = TextGenerator(*regard.load(folder))
    writing = GenerationStream(
        writer,
        writer.encode_prompt(prompt, max_new_tokens=12),
        sampling=sampling,
        seed=seed,
        num_return_sequences=number,
    )
    list(writing)
    return [one.text for one in writing.texts]


def test_only_the_text_is_printed(call: Call, t5: Path, gpt: Path, capsys: Captured) -> None:
    for folder in (t5, gpt):
        (expected,) = texts(folder, "the film", sampling=Sampling(temperature=0.8, top_p=0.9), seed=5)
        assert call("the film", "--seed", "5", "--max-new-tokens", "12", model=folder) == 0
        assert capsys.readouterr() == (expected + "\n", "")


def test_settings_reach_the_sampler(call: Call, t5: Path, capsys: Captured) -> None:
    sampling = Sampling(temperature=1.4, top_p=0.97, top_k=20, min_p=0.01, repetition_penalty=1.5)
    (expected,) = texts(t5, "the film", sampling=sampling, seed=2)
    arguments = (
        "--temperature 1.4 --top-p 0.97 --top-k 20 --min-p 0.01 --repetition-penalty 1.5 --seed 2 --max-new-tokens 12"
    )
    assert call("the film", *arguments.split()) == 0
    assert capsys.readouterr().out == expected + "\n"


def test_temperature_0_is_greedy(call: Call, t5: Path, capsys: Captured) -> None:
    (expected,) = texts(t5, "the film", sampling=None, seed=0)
    for seed in ("1", "2"):
        assert call("the film", "--temperature", "0", "--seed", seed, "--max-new-tokens", "12", "--json") == 0
        document = json.loads(capsys.readouterr().out)
        assert (document["method"], document["texts"][0]["text"]) == ("greedy", expected)


def test_several_texts(call: Call, t5: Path, capsys: Captured) -> None:
    expected = texts(t5, "a day", sampling=Sampling(temperature=0.8, top_p=0.9), seed=0, number=3)
    assert call("a day", "-n", "3", "--max-new-tokens", "12") == 0
    assert capsys.readouterr().out == "".join(f"=== {n}\n{text}\n" for n, text in enumerate(expected, 1))
    assert call("a day", "-n", "3", "--max-new-tokens", "12", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["text"] for one in document["texts"]] == expected
    assert GenerationConfig(**document["settings"]) == GenerationConfig(num_return_sequences=3, max_new_tokens=12)
    assert (document["prompt"], document["truncated"], document["tokens"]) == ("a day", 0, None)
    assert document["texts"][0]["score"] is None


def test_beam_search(call: Call, t5: Path, capsys: Captured) -> None:
    writer = TextGenerator(*regard.load(t5))
    beam = Beam(num_beams=4, num_return_sequences=2, length_penalty=0.5, early_stopping=True)
    expected = drain(writer.search_steps(writer.encode_prompt("the film", max_new_tokens=6), beam=beam))
    arguments = [
        "--num-beams",
        "4",
        "--num-return-sequences",
        "2",
        "--length-penalty",
        "0.5",
        "--early-stopping",
        "--max-new-tokens",
        "6",
    ]
    assert call("the film", *arguments) == 0
    out = "".join(f"=== {n}  score {one.score:.4f}\n{one.text}\n" for n, one in enumerate(expected, 1))
    assert capsys.readouterr() == (out, "")
    assert call("the film", *arguments, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["method"], [one["score"] for one in document["texts"]]) == ("beam", [e.score for e in expected])
    settings = {"num_beams": 4, "length_penalty": 0.5, "num_return_sequences": 2, "early_stopping": True}
    assert settings.items() <= document["settings"].items()


def test_stop_strings(call: Call, t5: Path, capsys: Captured) -> None:
    (free,) = texts(t5, "the film", sampling=Sampling(temperature=0.8, top_p=0.9), seed=5)
    letter = free[3]
    assert call("the film", "--seed", "5", "--max-new-tokens", "12", "--stop", "#", "--stop", letter, "--json") == 0
    (one,) = json.loads(capsys.readouterr().out)["texts"]
    assert (one["text"], one["reason"]) == (free[: free.index(letter)], "stop")


def test_standard_input(call: Call, t5: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the film\nthe day\n")))
    assert call("-", "--max-new-tokens", "12", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["prompt"] == "the film\nthe day"
    assert [document["texts"][0]["text"]] == texts(
        t5, "the film\nthe day", sampling=Sampling(temperature=0.8, top_p=0.9), seed=0
    )


def test_a_prompt_that_is_too_long_is_noted(call: Call, gpt: Path, capsys: Captured) -> None:
    prompt = "abcdefghij" * 6
    assert call(prompt, "--max-new-tokens", "8", "--json", model=gpt) == 0
    out, error = capsys.readouterr()
    document = json.loads(out)
    assert (document["truncated"], document["prompt"]) == (35, prompt)
    assert (
        "first 35 tokens were cut" in error
        and "abcdefghijabcdefghijabcdefghijabcde" in error
        and "25 are read" in error
    )
    assert call("a", "--max-new-tokens", "99", model=gpt) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert re.findall(r"\d+", line) == ["32", "99"] and "context" in line
    assert call("a", model=gpt) == 0
    assert capsys.readouterr().err == ""


def test_a_trace(call: Call, tmp_path: Path, capsys: Captured) -> None:
    arguments = ["the film", "--num-beams", "3", "--max-new-tokens", "4"]
    assert call(*arguments, "--trace", str(tmp_path / "trace.json")) == 0
    document = json.loads((tmp_path / "trace.json").read_text())
    text = capsys.readouterr().out.rstrip("\n")
    assert document["about"]["prompt"] == "the film" and document["method"] == "beam"
    assert document["rows"][0]["results"][0]["text"].lstrip() == text.lstrip()
    assert call(*arguments, "--trace", str(tmp_path / "trace.html")) == 0
    page = (tmp_path / "trace.html").read_text()
    assert page.startswith("<!doctype html>") and json.dumps(document["rows"][0]["results"][0]["score"]) in page
    assert call("the film", "-n", "2", "--max-new-tokens", "4", "--trace", str(tmp_path / "sample.json")) == 0
    document = json.loads((tmp_path / "sample.json").read_text())
    assert (document["method"], len(document["rows"])) == ("sample", 2)
    assert document["rows"][0]["steps"][0]["choices"][0]["cut"][0]["by"] == "top_p"


@pytest.mark.parametrize(
    "options", ["--seed 5", "--num-beams 3 --num-return-sequences 2 --length-penalty 0.5", "--temperature 0"]
)
@pytest.mark.parametrize("family", ["gpt", "t5"])
def test_a_page(
    family: str,
    options: str,
    request: pytest.FixtureRequest,
    page_built: None,
    call: Call,
    tmp_path: Path,
    capsys: Captured,
) -> None:
    """The same text as without a page, and the data of the studio's own file."""
    folder, page = request.getfixturevalue(family), tmp_path / "page.html"
    arguments = ["the film", *options.split(), "--max-new-tokens", "6"]
    assert call(*arguments, "--json", model=folder) == 0
    plain = json.loads(capsys.readouterr().out)
    assert call(*arguments, "--candidates", "--output", str(page), model=folder) == 0
    assert capsys.readouterr().out == f"{page}\n"
    data = page_data(page)
    (run,) = data["runs"]
    generation = Generation(load_model(folder), "the film", GenerationConfig(**plain["settings"]))
    list(generation.events())
    assert run == generation.result().run().model_dump(mode="json")
    assert "--candidates" in data["cli"]
    assert len(run["tokens"]) and all(token["candidates"] for token in run["tokens"])
    assert (run["trace"] is not None) == ("beams" in options)
    assert plain["texts"][0]["text"] == "".join(token["text"] for token in run["tokens"])


def test_a_page_requires_candidates(call: Call, tmp_path: Path, capsys: Captured) -> None:
    assert call("the film", "--max-new-tokens", "2", "--output", str(tmp_path / "page.html")) == 2
    assert "--candidates" in capsys.readouterr().err


def page_data(path: Path) -> dict[str, Any]:
    text = path.read_text("utf-8")
    start = text.index('id="regard">') + len('id="regard">')
    found: dict[str, Any] = json.loads(text[start : text.index("</script>", start)])
    return found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--top-p", "0"], "top_p is 0.0; expected"),
        (["--top-p", "1.2"], "top_p is 1.2"),
        (["--temperature", "-1"], "temperature is -1.0; expected"),
        (["--num-beams", "999"], "num_beams is 999, and the vocabulary has only"),
        (["--num-beams", "0"], "num_beams is 0; expected"),
        (["--num-beams", "2", "--num-return-sequences", "3"], "num_return_sequences is 3"),
        (["--num-beams", "2", "--top-p", "0.5"], "top_p is for sampling"),
        (["--length-penalty", "2"], "length_penalty is for beam search"),
        (["--early-stopping"], "early_stopping is for beam search"),
        (["--stop", ""], "a stop string is empty"),
        (["--trace", "trace.txt"], "ends in .json or .html"),
        (["--output", "page.txt"], "ends in .html, .svg, .png, .json"),
        (["--candidates", "--trace", "trace.json"], "--trace does not go with --candidates"),
        (["--candidates", "-n", "2"], "candidates are recorded for one sampled text"),
        (["--output", "/nowhere/page.html"], "there is no folder"),
        (["--trace", "/nowhere/trace.json"], "there is no folder"),
        (["--max-new-tokens", "0"], "max_new_tokens is 0"),
    ],
)
def test_invalid_input_is_a_one_line_error(
    arguments: list[str], message: str, page_built: None, call: Call, capsys: Captured
) -> None:
    assert call("the film", *arguments) == 2
    out, error = capsys.readouterr()
    assert out == "" and message in error and error.count("\n") == 1


def test_a_model_that_cannot_generate(call: Call, tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call("the film", model=tiny_bert_folder) == 2
    assert "cannot generate text" in capsys.readouterr().err


def test_an_interruption_preserves_the_text_so_far(
    call: Call, page_built: None, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    (whole,) = [json.loads(text)["texts"][0]["text"] for text in [_json(call, capsys, "the film")]]
    take, count = TextStream.push, 0

    def push(self: TextStream, token: int) -> str:
        nonlocal count
        count += 1
        if count % 4 == 0:
            raise KeyboardInterrupt
        return take(self, token)

    monkeypatch.setattr(TextStream, "push", push)
    assert call("the film", "--max-new-tokens", "12", "--seed", "5") == 130
    out, error = capsys.readouterr()
    assert error == "interrupted\n" and out.endswith("\n")
    assert whole.startswith(out.rstrip("\n")) and out.strip()
    path = tmp_path / "trace.json"
    assert call("the film", "--max-new-tokens", "12", "--seed", "5", "--json", "--trace", str(path)) == 130
    out, error = capsys.readouterr()
    (text,) = json.loads(out)["texts"]
    assert text["reason"] == "interrupted" and whole.startswith(text["text"]) and len(text["tokens"]) == 4
    assert len(json.loads(path.read_text())["rows"][0]["steps"]) == 4
    path = tmp_path / "page.html"
    arguments = ["--candidates", "--output", str(path)]
    assert call("the film", "--max-new-tokens", "12", "--seed", "5", *arguments) == 130
    assert capsys.readouterr().err == "interrupted\n"
    (one,) = page_data(path)["runs"]
    generated = "".join(token["text"] for token in one["tokens"])
    assert one["reason"] == "interrupted" and generated and whole.startswith(generated)


def _json(call: Call, capsys: Captured, prompt: str) -> str:
    assert call(prompt, "--max-new-tokens", "12", "--seed", "5", "--json") == 0
    return capsys.readouterr().out


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is a signal there only")
@pytest.mark.usefixtures("default_sigint")
def test_ctrl_c_while_streaming(t5: Path) -> None:
    """A real process and a real signal, while the text is read from a pipe."""
    arguments = [
        "generate",
        "the film",
        "--model",
        str(t5),
        "--max-new-tokens",
        "1000000",
        "--stop",
        "nothing has this",
    ]
    # Greedy decoding of this model repeats one token and never ends.
    command = [sys.executable, "-m", "regard", *arguments, "--temperature", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        first = process.stdout.read(3)
        process.send_signal(signal.SIGINT)
        rest, error = process.stdout.read(), process.stderr.read()
        assert process.wait() == 130
    output = (first + rest).decode()
    assert len(first) == 3 and output.endswith("\n") and without_heartbeat(error.decode()) == "interrupted\n"


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_folder(tmp_path_factory.mktemp("chat"))


def test_chat_reads_the_same_ids_as_transformers_and_gives_the_same_answer(
    call: Call, chat: Path, capsys: Captured
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "the film?"}]
    theirs, tokenizer = AutoModelForCausalLM.from_pretrained(chat), AutoTokenizer.from_pretrained(chat)
    inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    expected = theirs.generate(**inputs, max_new_tokens=12, do_sample=False, pad_token_id=1)[0]
    answer = expected[inputs["input_ids"].shape[1] :].tolist()
    result = regard.generate(messages, model=str(chat), chat=True, temperature=0.0, max_new_tokens=12)
    generation = Generation(
        load_model(chat), json.dumps(messages), GenerationConfig(temperature=0, max_new_tokens=12), chat=True
    )
    assert generation.prompt.ids == inputs["input_ids"][0].tolist()
    assert result.texts[0].tokens == answer
    assert result.prompt == tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert [message.role for message in result.messages or ()] == ["system", "user"]
    assert call("the film?", "--chat", "--system", "Be brief.", "-t", "0", "--max-new-tokens", "12", model=chat) == 0
    assert capsys.readouterr().out == result.texts[0].text + "\n"


def test_a_prompt_begins_as_the_tokenizer_begins_a_text(chat: Path) -> None:
    writer = TextGenerator(*regard.load(chat))
    (plain,) = [writer.tokenizer.encode("the film", add_special_tokens=False).ids]
    assert writer.encode_prompt("the film", max_new_tokens=1).ids == [0, *plain]
    assert writer.encode_prompt("<s>the film", max_new_tokens=1).ids == [0, *plain]
    assert writer.ends == {1, 3}


def test_chat_without_a_template_or_with_wrong_messages(call: Call, chat: Path, gpt: Path, capsys: Captured) -> None:
    assert call("hi", "--chat", model=gpt) == 2 and "no chat template" in capsys.readouterr().err
    assert call("hi", "--system", "x", model=chat) == 2 and "set chat" in capsys.readouterr().err
    assert call('[{"role": "user"}]', "--chat", model=chat) == 2
    assert "message 1: expected the texts 'role' and 'content'" in capsys.readouterr().err


def test_the_next_turn_of_a_chat_reads_only_what_is_new(chat: Path) -> None:
    """In a model that is kept, as by the studio; texts and candidates are those of a new model."""
    kept, config = replace(load_model(chat), cache={}), GenerationConfig(temperature=0, max_new_tokens=9)
    messages, before = [{"role": "user", "content": "the film?"}], ""

    def answer(loaded: LoadedModel) -> Generation:
        generation = Generation(loaded, json.dumps(messages), config, chat=True)
        assert list(generation.events())
        return generation

    for turn in range(3):
        found, expected = answer(kept), answer(load_model(chat))
        assert found.texts == expected.texts
        assert [token.text for token in found.tokens or ()] == [token.text for token in expected.tokens or ()]
        assert found.prompt_cache is not None
        if turn > 0:
            previous = found.generator.encode_prompt(before, max_new_tokens=1, add_special_tokens=False)
            assert len(previous.ids) <= found.prompt_cache.reused < len(found.prompt.ids)
        before = found.prompt_text
        messages += [{"role": "assistant", "content": found.text}, {"role": "user", "content": "why?"}]


def test_assistant_model(call: Call, gpt: Path, t5: Path, chat: Path, capsys: Captured, tmp_path: Path) -> None:
    model, tokenizer = regard.load(gpt)
    with torch.no_grad():
        model.embedding.tokens.weight.add_(0.05 * torch.randn_like(model.embedding.tokens.weight))
    assistant = tmp_path / "assistant"
    regard.save(model, assistant, tokenizer=tokenizer)
    for settings in (("-t", "0"), ("-t", "1", "--seed", "5"), ("-n", "2", "--seed", "1")):
        arguments = ("the film", "--max-new-tokens", "12", *settings)
        assert call(*arguments, model=gpt) == 0
        expected = capsys.readouterr().out
        assert call(*arguments, "--assistant-model", str(assistant), model=gpt) == 0
        assert capsys.readouterr().out == expected
    for other, error in ((t5, "causal model"), (chat, "another vocabulary"), (gpt, "the model itself")):
        assert call("the film", "--assistant-model", str(other), model=gpt) == 2
        assert error in capsys.readouterr().err
    assert call("the film", "-b", "2", "--assistant-model", str(assistant), model=gpt) == 2
    assert "num_beams" in capsys.readouterr().err
