"""The page around the built script: its contents, its security policy, and the error without a build."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import RegardError
from regard.render.bundle import is_built, page


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("static")
    (folder / "bundle.js").write_text("console.log(1 < 2)", encoding="utf-8")
    (folder / "bundle.css").write_text("p { color: red }", encoding="utf-8")
    return folder


def payload_in(text: str) -> object:
    start = text.index('id="regard">') + len('id="regard">')
    return json.loads(text[start : text.index("</script>", start)])


def test_the_page_contains_script_style_and_payload_and_allows_only_this_script(static: Path) -> None:
    text = page({"view": "x", "n": 1.5}, title="a < b", static=static)
    assert "<title>a &lt; b</title>" in text and "<style>p { color: red }</style>" in text
    assert payload_in(text) == {"view": "x", "n": 1.5}
    fingerprint = base64.b64encode(hashlib.sha256(b"console.log(1 < 2)").digest()).decode()
    assert f"script-src 'sha256-{fingerprint}';" in text and "<script>console.log(1 < 2)</script>" in text
    assert "default-src 'none'" in text and "worker-src blob:" in text and "connect-src 'none'" in text
    assert "connect-src 'self'" in page({}, online=True, static=static)


@given(st.text() | st.sampled_from(["</script><script>alert(1)</script>", "<!--", "]]>", "\u2028", "\ud800"]))
def test_any_text_round_trips_and_cannot_break_out_of_the_json(static: Path, text: str) -> None:
    whole = page({"text": text}, static=static)
    assert payload_in(whole) == {"text": text}
    assert whole.count("<script") == 2 and whole.count("</script") == 2
    whole.encode("utf-8")


def test_nan_is_rejected(static: Path) -> None:
    with pytest.raises(RegardError, match="NaN or infinity"):
        page({"n": float("nan")}, static=static)


def test_the_error_for_a_missing_build_names_the_command(tmp_path: Path) -> None:
    assert not is_built(tmp_path)
    with pytest.raises(RegardError, match=r"python web/build\.py"):
        page({}, static=tmp_path)


def test_a_script_with_a_closing_tag_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "bundle.js").write_text("'</script>'", encoding="utf-8")
    (tmp_path / "bundle.css").write_text("", encoding="utf-8")
    with pytest.raises(RegardError, match="closing tag"):
        page({}, static=tmp_path)
