"""`regard generate` as its user sees it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli import generate
from regard.cli.app import run
from regard.inference.generation import Beam, Sampling, TextGenerator, TextStream
from regard.interpret.generation.config import GenerationConfig
from regard.interpret.generation.generation import Generation, generate_side_by_side, generation_payload
from tests.inference.generation.folders import gpt_folder, t5_folder

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
    """Run `regard generate` in this process, with the tiny T5 unless told otherwise."""

    def regard_generate(*arguments: str, model: Path = t5) -> int:
        return run(["generate", *arguments, "--model", str(model)], registers=[generate.register])

    return regard_generate


def texts(folder: Path, prompt: str, *, sampling: Sampling | None, seed: int, number: int = 1) -> list[str]:
    writer = TextGenerator(*regard.load(folder))
    writing = writer.stream(
        writer.encode_prompt(prompt, max_new_tokens=12), sampling=sampling, seed=seed, num_return_sequences=number
    )
    list(writing)
    return [one.text for one in writing.texts]


def test_the_text_and_nothing_else(call: Call, t5: Path, gpt: Path, capsys: Captured) -> None:
    for folder in (t5, gpt):
        (expected,) = texts(folder, "the film", sampling=Sampling(temperature=0.8, top_p=0.9), seed=5)
        assert call("the film", "--seed", "5", "--max-tokens", "12", model=folder) == 0
        assert capsys.readouterr() == (expected + "\n", "")


def test_settings_reach_the_sampler(call: Call, t5: Path, capsys: Captured) -> None:
    sampling = Sampling(temperature=1.4, top_p=0.97, top_k=20, min_p=0.01, repetition_penalty=1.5)
    (expected,) = texts(t5, "the film", sampling=sampling, seed=2)
    arguments = "--temperature 1.4 --top-p 0.97 --top-k 20 --min-p 0.01 --repetition 1.5 --seed 2 --max-tokens 12"
    assert call("the film", *arguments.split()) == 0
    assert capsys.readouterr().out == expected + "\n"


def test_temperature_0_is_greedy(call: Call, t5: Path, capsys: Captured) -> None:
    (expected,) = texts(t5, "the film", sampling=None, seed=0)
    for seed in ("1", "2"):
        assert call("the film", "--temperature", "0", "--seed", seed, "--max-tokens", "12", "--json") == 0
        document = json.loads(capsys.readouterr().out)
        assert (document["method"], document["texts"][0]["text"]) == ("greedy", expected)


def test_several_texts(call: Call, t5: Path, capsys: Captured) -> None:
    expected = texts(t5, "a day", sampling=Sampling(temperature=0.8, top_p=0.9), seed=0, number=3)
    assert call("a day", "-n", "3", "--max-tokens", "12") == 0
    assert capsys.readouterr().out == "".join(f"=== {n}\n{text}\n" for n, text in enumerate(expected, 1))
    assert call("a day", "-n", "3", "--max-tokens", "12", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["text"] for one in document["texts"]] == expected
    assert document["settings"] == {
        "repetition_penalty": 1.0,
        "temperature": 0.8,
        "top_k": None,
        "top_p": 0.9,
        "min_p": 0.0,
    }
    assert (document["prompt"], document["cut"], document["seed"]) == ("a day", 0, 0)
    assert set(document["texts"][0]) == {"text", "tokens", "reason"}


def test_a_beam(call: Call, t5: Path, capsys: Captured) -> None:
    writer = TextGenerator(*regard.load(t5))
    beam = Beam(num_beams=4, num_return_sequences=2, length_penalty=0.5, early_stopping=True)
    expected = writer.beam_search(writer.encode_prompt("the film", max_new_tokens=6), beam=beam)
    arguments = ["--beam", "4", "--nbest", "2", "--length-penalty", "0.5", "--early", "--max-tokens", "6"]
    assert call("the film", *arguments) == 0
    out = "".join(f"=== {n}  score {one.score:.4f}\n{one.text}\n" for n, one in enumerate(expected, 1))
    assert capsys.readouterr() == (out, "")
    assert call("the film", *arguments, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["method"], [one["score"] for one in document["texts"]]) == ("beam", [e.score for e in expected])
    assert document["settings"] == {
        "num_beams": 4,
        "length_penalty": 0.5,
        "num_return_sequences": 2,
        "early_stopping": True,
    }


def test_stop_strings(call: Call, t5: Path, capsys: Captured) -> None:
    (free,) = texts(t5, "the film", sampling=Sampling(temperature=0.8, top_p=0.9), seed=5)
    letter = free[3]
    assert call("the film", "--seed", "5", "--max-tokens", "12", "--stop", "#", "--stop", letter, "--json") == 0
    (one,) = json.loads(capsys.readouterr().out)["texts"]
    assert (one["text"], one["reason"]) == (free[: free.index(letter)], "stop")


def test_standard_input(call: Call, t5: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the film\nthe day\n")))
    assert call("-", "--max-tokens", "12", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["prompt"] == "the film\nthe day"
    assert [document["texts"][0]["text"]] == texts(
        t5, "the film\nthe day", sampling=Sampling(temperature=0.8, top_p=0.9), seed=0
    )


def test_a_prompt_that_is_too_long_is_told(call: Call, gpt: Path, capsys: Captured) -> None:
    prompt = "abcdefghij" * 6
    assert call(prompt, "--max-tokens", "8", "--json", model=gpt) == 0
    out, error = capsys.readouterr()
    document = json.loads(out)
    assert (document["cut"], document["prompt"]) == (35, prompt)
    assert (
        "first 35 tokens were cut" in error
        and "abcdefghijabcdefghijabcdefghijabcde" in error
        and "25 are read" in error
    )
    assert call("a", "--max-tokens", "99", model=gpt) == 0
    assert capsys.readouterr().err == "this model's context has room for 32 more tokens, not for 99\n"
    assert call("a", model=gpt) == 0
    assert capsys.readouterr().err == ""


def test_a_trace(call: Call, tmp_path: Path, capsys: Captured) -> None:
    arguments = ["the film", "--beam", "3", "--max-tokens", "4"]
    assert call(*arguments, "--trace", str(tmp_path / "trace.json")) == 0
    document = json.loads((tmp_path / "trace.json").read_text())
    text = capsys.readouterr().out.rstrip("\n")
    assert document["about"]["prompt"] == "the film" and document["method"] == "beam"
    assert document["rows"][0]["results"][0]["text"].lstrip() == text.lstrip()
    assert call(*arguments, "--trace", str(tmp_path / "trace.html")) == 0
    page = (tmp_path / "trace.html").read_text()
    assert page.startswith("<!doctype html>") and json.dumps(document["rows"][0]["results"][0]["score"]) in page
    assert call("the film", "-n", "2", "--max-tokens", "4", "--trace", str(tmp_path / "sample.json")) == 0
    document = json.loads((tmp_path / "sample.json").read_text())
    assert (document["method"], len(document["rows"])) == ("sample", 2)
    assert document["rows"][0]["steps"][0]["choices"][0]["cut"][0]["by"] == "top_p"


@pytest.mark.parametrize("options", ["--seed 5", "--beam 3 --nbest 2 --length-penalty 0.5", "--temperature 0"])
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
    """The same text as without a page, and the payload of the studio's own file."""
    folder, place = request.getfixturevalue(family), tmp_path / "said.html"
    arguments = ["the film", *options.split(), "--max-tokens", "6"]
    assert call(*arguments, model=folder) == 0
    plain = capsys.readouterr()
    assert call(*arguments, "--page", str(place), model=folder) == 0
    assert capsys.readouterr() == plain
    beam = Beam(num_beams=3, num_return_sequences=2, length_penalty=0.5) if "beam" in options else None
    sampling = Sampling(temperature=0.0 if "temperature" in options else 0.8, top_p=0.9)
    speech = Generation(
        TextGenerator(*regard.load(folder)),
        "the film",
        GenerationConfig(Sampling() if beam else sampling, beam, 5 if "seed" in options else 0, 6),
        str(folder),
    )
    generate_side_by_side([speech], lambda news: None)
    payload = shown(place)
    assert payload == json.loads(json.dumps(generation_payload("the film", [speech])))
    (run,) = payload["runs"]
    assert "stochastic parrots" in payload["caveat"] and "--page page.html" in payload["cli"]
    assert len(run["tokens"]) and all(token["bars"] for token in run["tokens"])
    assert (run["trace"] is not None) == (beam is not None)
    assert call(*arguments, "--page", str(place), "--json", model=folder) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["texts"][0]["text"] == "".join(token["text"] for token in run["tokens"])


def shown(place: Path) -> dict[str, Any]:
    text = place.read_text("utf-8")
    start = text.index('id="regard">') + len('id="regard">')
    found: dict[str, Any] = json.loads(text[start : text.index("</script>", start)])
    return found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--top-p", "0"], "top-p is 0.0; expected a share above 0"),
        (["--top-p", "1.2"], "top-p is 1.2"),
        (["--temperature", "-1"], "temperature is -1.0; expected a number from 0"),
        (["--beam", "999"], "num_beams is 999, and the vocabulary has only"),
        (["--beam", "0"], "num_beams is 0; expected at least 1"),
        (["--beam", "2", "--nbest", "3"], "num_return_sequences is 3"),
        (["--beam", "2", "--top-p", "0.5"], "--top-p does not go with --beam"),
        (["--beam", "2", "--number", "3"], "--number does not go with --beam"),
        (["--nbest", "2"], "--nbest needs --beam N"),
        (["--early"], "--early needs --beam N"),
        (["--stop", ""], "a stop string is empty"),
        (["--trace", "trace.txt"], "written as .json or as an .html page"),
        (["--page", "page.json"], "page.json: a page is written as .html"),
        (["--page", "page.html", "--trace", "trace.json"], "--trace does not go with --page"),
        (["--page", "page.html", "--number", "2"], "--number does not go with --page"),
        (["--page", "/nowhere/page.html"], "there is no folder"),
        (["--trace", "/nowhere/trace.json"], "there is no folder"),
        (["--max-tokens", "0"], "--max-tokens"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, page_built: None, call: Call, capsys: Captured
) -> None:
    assert call("the film", *arguments) == 2
    out, error = capsys.readouterr()
    assert out == "" and message in error and error.count("\n") == 1


def test_a_model_that_does_not_write(call: Call, tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call("the film", model=tiny_bert_folder) == 2
    assert "reads texts and writes none" in capsys.readouterr().err


def test_an_interruption_leaves_what_was_said(
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
    assert call("the film", "--max-tokens", "12", "--seed", "5") == 130
    out, error = capsys.readouterr()
    assert error == "interrupted\n" and out.endswith("\n")
    assert whole.startswith(out.rstrip("\n")) and out.strip()
    place = tmp_path / "trace.json"
    assert call("the film", "--max-tokens", "12", "--seed", "5", "--json", "--trace", str(place)) == 130
    out, error = capsys.readouterr()
    (text,) = json.loads(out)["texts"]
    assert text["reason"] == "interrupted" and whole.startswith(text["text"]) and len(text["tokens"]) == 4
    assert len(json.loads(place.read_text())["rows"][0]["steps"]) == 4
    place = tmp_path / "page.html"
    assert call("the film", "--max-tokens", "12", "--seed", "5", "--page", str(place)) == 130
    assert capsys.readouterr().err == "interrupted\n"
    (one,) = shown(place)["runs"]
    said = "".join(token["text"] for token in one["tokens"])
    assert one["reason"] == "interrupted" and said and whole.startswith(said)


def _json(call: Call, capsys: Captured, prompt: str) -> str:
    assert call(prompt, "--max-tokens", "12", "--seed", "5", "--json") == 0
    return capsys.readouterr().out


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is a signal there only")
@pytest.mark.usefixtures("default_sigint")
def test_ctrl_c_in_mid_stream(t5: Path) -> None:
    """A real process, a real signal, while the text comes through a pipe."""
    arguments = ["generate", "the film", "--model", str(t5), "--max-tokens", "1000000", "--stop", "nothing has this"]
    # A token that never ends the text: the likeliest of this model, again and again.
    command = [sys.executable, "-m", "regard", *arguments, "--temperature", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        first = process.stdout.read(3)
        process.send_signal(signal.SIGINT)
        rest, error = process.stdout.read(), process.stderr.read()
        assert process.wait() == 130
    said = (first + rest).decode()
    assert len(first) == 3 and said.endswith("\n") and error == b"interrupted\n"
