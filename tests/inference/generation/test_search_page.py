"""The page of a search: whole, self-contained, true to the trace, and with the lines that make it again."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
import torch

from regard.inference.generation import Beam, Sampling, Trace, beam_search, sample
from regard.inference.generation.trace import TraceDocument, search_page, search_payload
from tests.inference.generation.models import Chain
from tests.render.page_data import payload_of

PROMPTS = torch.tensor([[1, 2], [3, 1]])
NASTY = ["<end>", "</script><script>alert(1)</script>", "a&b", '"', "\n", "\x1b", " ", "é", "\ud800"]


@pytest.fixture(scope="module")
def beam() -> TraceDocument:
    trace = Trace(top=4, token_text=lambda token: f"word{token}")
    beam_search(
        Chain(9, seed=1), PROMPTS, beam=Beam(num_beams=3, num_return_sequences=2), end=0, max_new_tokens=6, trace=trace
    )
    return trace.document({"prompt": "x < y", "settings": {"num_beams": 3, "length_penalty": 1.0}})


@pytest.fixture(scope="module")
def chance() -> TraceDocument:
    trace = Trace(top=9, token_text=NASTY.__getitem__)
    sampling = Sampling(temperature=2.0, top_p=0.7)
    list(sample(Chain(9, seed=1), PROMPTS, sampling=sampling, end=0, max_new_tokens=5, trace=trace))
    return trace.document({"prompt": "\udcff"})


@pytest.mark.usefixtures("page_built")
def test_the_document_is_in_the_page(beam: TraceDocument, chance: TraceDocument) -> None:
    for document in (beam, chance):
        text = search_page(document)
        text.encode("utf-8")  # a lone surrogate of a token or a prompt would fail here
        shown = payload_of(text)
        assert shown["trace"] == json.loads(json.dumps(document)) and shown["view"] == "search"


def test_the_lines_of_a_beam(beam: TraceDocument) -> None:
    about = {"model": "folder of mine", "prompt": "it's x < y", "max_new_tokens": 7, "method": "beam"}
    settings = {"num_beams": 3, "length_penalty": 1.0, "num_return_sequences": 2, "early_stopping": True}
    payload = search_payload({**beam, "about": {**about, "settings": settings}})
    words = shlex.split(str(payload["cli"]))
    assert words[:3] == ["regard", "generate", "it's x < y"]
    plain = [word for word in words if word != "--early-stopping"]
    options = dict(zip(plain[3::2], plain[4::2], strict=False))
    assert options["--model"] == "folder of mine" and options["--max-new-tokens"] == "7"
    assert (options["--num-beams"], options["--num-return-sequences"], options["--length-penalty"]) == ("3", "2", "1.0")
    assert "--early-stopping" in words and words[-2:] == ["--trace", "page.html"]


@pytest.mark.parametrize("prompt", ["-5 degrees", "--seed 9", "plain"])
def test_the_command_takes_a_prompt_that_begins_with_a_dash(beam: TraceDocument, prompt: str) -> None:
    import typer
    from typer.main import get_command

    from regard.cli.commands import register
    from regard.verbs import find

    about = {
        "model": "m",
        "prompt": prompt,
        "max_new_tokens": 7,
        "method": "beam",
        "settings": {"num_beams": 3, "num_return_sequences": 2},
    }
    words = shlex.split(str(search_payload({**beam, "about": about})["cli"]))
    app = typer.Typer()
    register(app, find("generate"))
    given = get_command(app).make_context("generate", words[2:]).params
    assert (given["prompt"], given["model"], given["max_new_tokens"]) == (prompt, "m", 7)
    assert (given["num_beams"], given["num_return_sequences"], str(given["trace"])) == (3, 2, "page.html")


def test_the_lines_of_chance_can_be_run(chance: TraceDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"temperature": 2.0, "top_k": None, "top_p": 0.7, "seed": 4}
    about = {"model": "m", "prompt": "\udcff", "max_new_tokens": 5, "method": "sample", "settings": settings}
    payload = search_payload({**chance, "about": about})
    words = shlex.split(str(payload["cli"]))
    assert words[words.index("--temperature") :][:6] == ["--temperature", "2.0", "--top-p", "0.7", "--seed", "4"]
    assert "--top-k" not in words
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    monkeypatch.setattr("regard.generate", lambda *given, **options: calls.append((given, options)), raising=False)
    exec(str(payload["python"]), {})
    options = {"temperature": 2.0, "top_p": 0.7, "seed": 4, "max_new_tokens": 5, "trace": "page.html"}
    assert calls == [(("\udcff",), {"model": "m", **options})]


def test_the_lines_of_a_translation(beam: TraceDocument) -> None:
    settings = {"num_beams": 5, "length_penalty": 1.0, "num_return_sequences": 1}
    about = {"model": "de-en", "texts": ["Das ist's.", "Ja."], "settings": settings}
    payload = search_payload({**beam, "about": about})
    texts, command = str(payload["cli"]).split(" | ")
    assert texts == "printf %s 'Das ist'\"'\"'s.\nJa.\n'"
    assert (
        command
        == "regard translate de-en - --num-beams 5 --length-penalty 1.0 --num-return-sequences 1 --trace page.html"
    )
    assert "regard.translate('de-en', [\"Das ist's.\", 'Ja.'], num_beams=5" in str(payload["python"])
