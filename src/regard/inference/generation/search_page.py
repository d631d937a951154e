"""A search for the page: the trace of what was said and what was not, and the lines that make it again.

Knows the document of a trace and what `generate` and `translate` say about theirs. Knows nothing of models or tensors;
the page draws the tree.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from regard.inference.generation.trace import TraceDocument
from regard.render.bundle import page

__all__ = ["search_page", "search_payload"]

TITLES = {"beam": "A beam search, step by step", "sample": "Sampling, token by token"}
# Options whose names differ from the settings.
OPTIONS = {
    "num_beams": "beam",
    "num_return_sequences": "nbest",
    "early_stopping": "early",
    "repetition_penalty": "repetition",
}


def search_page(document: TraceDocument) -> str:
    """The whole page, for each row its texts, the tree and the steps."""
    return page(search_payload(document), title=TITLES[document["method"]])


def search_payload(document: TraceDocument) -> dict[str, object]:
    translated = "texts" in document["about"]
    cli, python = (_translating if translated else _writing)(document["about"])
    return {"view": "search", "title": TITLES[document["method"]], "trace": document, "cli": cli, "python": python}


def _writing(about: Mapping[str, object]) -> tuple[str, str]:
    model, prompt, count = (about.get(name) for name in ("model", "prompt", "max_tokens"))
    settings = _settings(about)
    options = [*_options(settings), *(["--seed", str(about["seed"])] if "seed" in about else [])]
    said = ["--max-tokens", str(count)] if count is not None else []
    asked = ["--model", str(model), *said, *options, "--trace", "page.html"]
    dashed = str(prompt).startswith("-")  # it would be read as an option
    command = ["regard", "generate", *([*asked, "--", str(prompt)] if dashed else [str(prompt), *asked])]
    searched = about.get("method") == "beam"
    kind = "Beam" if searched else "Sampling"
    given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    how = f"beam=Beam({given})" if searched else f"sampling=Sampling({given}), seed={about.get('seed', 0)!r}"
    call = f"generator.{'beam_search' if searched else 'stream'}(prompt, {how}, trace=trace)"
    python = [
        f"from regard.inference.generation import {kind}, TextGenerator",
        "from regard.checkpoints.loading import load",
        "",
        f"generator = TextGenerator(*load({model!r}))",
        f"prompt, trace = generator.encode_prompt({prompt!r}, max_new_tokens={count}), generator.trace()",
        call if searched else f"list({call})",
        "print(trace.document({}))",
    ]
    return _line(command), "\n".join(python)


def _translating(about: Mapping[str, object]) -> tuple[str, str]:
    model, texts, settings = about.get("model"), about["texts"], _settings(about)
    assert isinstance(texts, list)
    given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    python = [
        "from regard.inference.generation import Beam, Trace",
        "from regard.inference.translation import load_translator",
        "",
        f"translator, trace = load_translator({model!r}), Trace()",
        f"translator.translate({texts!r}, beam=Beam({given}), trace=trace)",
        "print(trace.document({}))",
    ]
    options = [*_options(settings), "--trace", "page.html"]
    lines = "".join(f"{text}\n" for text in texts)
    command = _line(["regard", "translate", str(model), "-", *options])
    return f"printf %s {_quoted(lines)} | {command}", "\n".join(python)


def _settings(about: Mapping[str, object]) -> dict[str, object]:
    settings = about.get("settings", {})
    return dict(settings) if isinstance(settings, Mapping) else {}


def _options(settings: Mapping[str, object]) -> Iterator[str]:
    for name, value in settings.items():
        option = f"--{OPTIONS.get(name, name).replace('_', '-')}"
        if value is True:
            yield option
        elif value is not None and value is not False:
            yield from (option, str(value))


def _line(words: list[str]) -> str:
    return " ".join(map(_quoted, words))


def _quoted(text: str) -> str:
    """For a shell; what no text can hold is shown as it would be escaped."""
    return shlex.quote(text.encode("utf-8", "backslashreplace").decode())
