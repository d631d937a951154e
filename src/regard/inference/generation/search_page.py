"""The page of a trace: its data, and the lines that reproduce it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from regard.inference.generation.trace import TraceDocument
from regard.render.bundle import page

TITLES = {"beam": "A beam search, step by step", "sample": "Sampling, token by token"}


def search_page(document: TraceDocument) -> str:
    """The whole page, for each row its texts, the tree and the steps."""
    return page(search_payload(document), title=TITLES[document["method"]])


def search_payload(document: TraceDocument) -> dict[str, object]:
    translated = "texts" in document["about"]
    cli, python = (_translating if translated else _writing)(document["about"])
    return {"view": "search", "title": TITLES[document["method"]], "trace": document, "cli": cli, "python": python}


def _writing(about: Mapping[str, object]) -> tuple[str, str]:
    model, prompt = str(about.get("model")), str(about.get("prompt"))
    settings = {name: value for name, value in _settings(about).items() if value not in (None, False, [], ())}
    if about.get("max_new_tokens") is not None:
        settings["max_new_tokens"] = about["max_new_tokens"]
    options = ["--model", model, *_options(settings), "--trace", "page.html"]
    dashed = prompt.startswith("-")  # it would be read as an option
    command = ["regard", "generate", *([*options, "--", prompt] if dashed else [prompt, *options])]
    given = "".join(f", {name}={value!r}" for name, value in settings.items())
    python = f"import regard\n\nregard.generate({prompt!r}, model={model!r}{given}, trace='page.html')"
    return _line(command), python


def _translating(about: Mapping[str, object]) -> tuple[str, str]:
    model, texts, settings = about.get("model"), about["texts"], _settings(about)
    assert isinstance(texts, list)
    given = "".join(f", {name}={value!r}" for name, value in settings.items())
    python = f"import regard\n\nregard.translate({model!r}, {texts!r}{given}, trace='page.html')"
    options = [*_options(settings), "--trace", "page.html"]
    lines = "".join(f"{text}\n" for text in texts)
    command = _line(["regard", "translate", str(model), "-", *options])
    return f"printf %s {_quoted(lines)} | {command}", python


def _settings(about: Mapping[str, object]) -> dict[str, object]:
    settings = about.get("settings", {})
    return dict(settings) if isinstance(settings, Mapping) else {}


def _options(settings: Mapping[str, object]) -> Iterator[str]:
    for name, value in settings.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            yield option
        elif value is not None and value is not False:
            yield from (option, ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


def _line(words: list[str]) -> str:
    return " ".join(map(_quoted, words))


def _quoted(text: str) -> str:
    """Quoted for a shell; characters that UTF-8 cannot encode are escaped."""
    return shlex.quote(text.encode("utf-8", "backslashreplace").decode())
