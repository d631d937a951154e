"""Self-contained pages: the data of a view, the built script and the style in a single HTML file."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping
from pathlib import Path

from regard.errors import RegardError
from regard.files.json_files import json_text
from regard.files.output_file import HTML_MARK

STATIC = Path(__file__).resolve().parents[1] / "server" / "static"
SCRIPT, STYLE = "bundle.js", "bundle.css"


def is_built(static: Path = STATIC) -> bool:
    """Whether the page's script and style are built."""
    return (static / SCRIPT).is_file() and (static / STYLE).is_file()


def check_built(static: Path = STATIC) -> None:
    """Raise RegardError with the command to run if they are not."""
    if not is_built(static):
        raise RegardError(
            f"the page is not built: {static / SCRIPT} is missing. In Regard's sources run `python web/build.py` "
            "(it needs Node.js 20.19 or newer, or a package index to fetch it from), then try again"
        )


def page(payload: Mapping[str, object], *, title: str = "Regard", online: bool = False, static: Path = STATIC) -> str:
    """A complete HTML document that shows the data of a view and needs no network.

    Its content security policy allows this script alone, with workers that it starts, and no requests; with `online`,
    requests to its own server.
    """
    check_built(static)
    script = (static / SCRIPT).read_text(encoding="utf-8")
    style = (static / STYLE).read_text(encoding="utf-8")
    if "</script" in script.lower() or "</style" in style.lower():
        raise RegardError("the build contains a closing tag, which would end the page early; build it again")
    fingerprint = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{fingerprint}'; style-src 'unsafe-inline'; img-src data: blob:; "
        f"worker-src blob:; connect-src {chr(39)}{'self' if online else 'none'}{chr(39)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"{HTML_MARK}\n"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(_writable(title))}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<div id="page"><p>This page needs JavaScript.</p></div>\n'
        f'<script type="application/json" id="regard">{script_json(payload)}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def script_json(payload: Mapping[str, object]) -> str:
    """JSON that contains no tag; a lone surrogate becomes a JSON escape."""
    text = json_text(payload).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return _writable(text)


def _writable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
