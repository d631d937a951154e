"""Chat templates: the Jinja programs of instruction-tuned models that convert messages to a prompt.

A template is rendered in a separate process with limits, because it is code from a checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from regard.errors import InputError
from regard.text.guard import run_limited

MAX_TEMPLATE = 200_000  # characters
MAX_TEXT = 4_000_000  # characters of a prompt
MEMORY = 1 << 29  # bytes of address space
SECONDS = 5  # of CPU time
WAIT = 60.0  # seconds
PROGRAM = Path(__file__).with_name("chat_template_process.py")
Message = Mapping[str, str]


def read_messages(prompt: str, *, system: str | None = None) -> list[dict[str, str]]:
    """The messages of a prompt: a JSON list of objects with "role" and "content", or one message of the user.

    `system` is put before them as a message of the system.
    """
    messages: object = None
    if prompt.lstrip().startswith("["):
        try:
            messages = json.loads(prompt)
        except ValueError:
            messages = None  # a text that begins with a bracket
    if not (isinstance(messages, list) and messages and all(isinstance(one, dict) for one in messages)):
        messages = [{"role": "user", "content": prompt}]
    for number, message in enumerate(messages, 1):
        if set(message) != {"role", "content"} or not all(isinstance(value, str) for value in message.values()):
            found = ", ".join(str(key)[:40] for key in message) or "nothing"
            raise InputError(f"message {number}: expected the texts 'role' and 'content', found {found}")
    if system is not None:
        if messages[0]["role"] == "system":
            raise InputError("the messages begin with one of the system; leave it out, or leave out --system")
        messages = [{"role": "system", "content": system}, *messages]
    return messages


def render_chat(
    template: str,
    messages: Sequence[Message],
    *,
    special_tokens: Mapping[str, str],
    add_generation_prompt: bool = True,
) -> str:
    """Render messages as transformers' `apply_chat_template` does; InputError if the template refuses them."""
    if find_spec("jinja2") is None:
        raise InputError("chat templates need the package jinja2: pip install jinja2")
    variables = {
        **special_tokens,
        "messages": [dict(message) for message in messages],
        "add_generation_prompt": add_generation_prompt,
        "tools": None,
        "documents": None,
    }
    limits = {"memory": MEMORY, "seconds": SECONDS, "longest": MAX_TEXT}
    document = json.dumps({"template": template, "variables": variables}).encode()
    process = run_limited(PROGRAM, limits, document, wait=WAIT, what="a chat template is rendered")
    if process is None:
        raise InputError(f"the chat template took more than {WAIT:.0f} seconds")
    try:
        answer = json.loads(process.stdout)
    except ValueError:
        reason = f"more than {SECONDS} seconds" if process.returncode in (-24, 152, -9, 137) else "too much memory"
        raise InputError(f"the chat template of this model cannot be used: it takes {reason}") from None
    if "error" in answer:
        raise InputError(f"the chat template of this model cannot render these messages: {answer['error'][:500]}")
    return str(answer["text"])
