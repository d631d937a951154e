"""A program that renders a chat template under limits of time, memory and length.

It runs as a script (`python -I -S chat_template_process.py LIMITS < DOCUMENT`) and does not import Regard. A template
is code of the checkpoint's author: Jinja's sandbox refuses access to Python, and the limits of this process end endless
loops and texts that double themselves. Prints {"text": ...}, or {"error": ...} with the reason.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any


class Refused(Exception):
    """What `raise_exception` of a template raises."""


def render(document: dict[str, Any], longest: int) -> str:
    """Render as transformers does: the same environment, functions and filters."""
    from jinja2 import Undefined
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: object) -> None:
        raise Refused(str(message))

    def tojson(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], undefined=Undefined
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    pieces, length = [], 0
    for piece in environment.from_string(document["template"]).generate(**document["variables"]):
        length += len(piece)
        if length > longest:
            raise Refused(f"the text has more than {longest:,} characters")
        pieces.append(piece)
    return "".join(pieces)


def _limit(memory: int, seconds: int) -> None:
    try:
        import resource
    except ImportError:  # then the timeout of the parent process is the only limit
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _main(limits: dict[str, Any]) -> dict[str, str]:
    _limit(limits["memory"], limits["seconds"])
    sys.path[:0] = limits["path"]
    document = json.loads(sys.stdin.buffer.read())
    try:
        return {"text": render(document, limits["longest"])}
    except MemoryError:
        return {"error": f"it needs more than {limits['memory'] >> 20:,} MiB of memory"}
    except Exception as error:  # a template may raise anything
        return {"error": f"{error}" if isinstance(error, Refused) else f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    sys.stdout.buffer.write(json.dumps(_main(json.loads(sys.argv[1]))).encode())
