"""The completions of a served model, without its process."""

import threading
from typing import Any

import pytest

from regard.device import choose_device
from regard.events import drain
from regard.inference.load_model import load_model
from regard.server.models.completion_job import CompletionJob


@pytest.mark.parametrize(
    ("prompt", "warns"), [("The dog", False), ("Как твои дела, мой друг?", True), ([464, 3290], False)]
)
def test_a_prompt_that_the_model_cannot_read_is_said(prompt: str | list[int], warns: bool) -> None:
    job = CompletionJob(load_model("regard-gpt", device=choose_device("cpu")))
    options = {"temperature": 1.0, "top_p": 1.0, "n": 1, "stop": [], "seed": 0, "logprobs": None}
    options |= {"stream": False, "echo": False}
    arguments: dict[str, Any] = {"prompts": [prompt], "max_tokens": 1, **options}
    reply, tokens, warning = drain(job(arguments, threading.Event(), lambda event: None))
    assert len(reply["choices"]) == 1 and tokens > 1
    assert ("not the language of 1 text" in warning) is warns and bool(warning) is warns
