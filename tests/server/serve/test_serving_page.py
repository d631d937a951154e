"""The examples of docs/serving.md run against a server of tiny models with the names of the page; its systemd unit is
verified."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.serve_process import ServerProcess, start_server
from tests.server.serve.conftest import CHAT, CLASSIFIER, EMBED, GPT, RERANKER

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "serving.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8000"
NAMES = {
    "regard-embed": EMBED,
    "regard-gpt": GPT,
    "regard-spam": CLASSIFIER,
    "my-reranker": RERANKER,
    "my-chat-model": CHAT,
}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def served(model_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The first command of the page, with other models of the same names and another port."""
    command = re.findall(r"^    (regard serve .*)$", PAGE, re.MULTILINE)[0]
    names = [word for word in shlex.split(command)[2:] if word in NAMES]
    assert names == [*NAMES] and command.endswith("--port 8000")
    folder = tmp_path_factory.mktemp("page")
    for name, copied in NAMES.items():
        shutil.copytree(model_folders[copied], folder / name)
    with start_server([str(folder / name) for name in names]) as server:
        yield server


@pytest.mark.long
def test_the_requests_with_curl(served: ServerProcess) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    commands = [line for line in blocks("bash")[0].replace("\\\n", "").splitlines() if line]
    assert len(commands) == 8
    for command in commands:
        assert command.startswith(f"curl {ADDRESS}/")
        words = [*shlex.split(command.replace(ADDRESS, served.address)), "--fail-with-body", "--silent"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stdout[0] in "[{", (command, done.stdout, done.stderr)


def test_the_python(served: ServerProcess) -> None:
    pytest.importorskip("openai")
    examples = blocks("python")
    assert len(examples) == 3
    for code in examples:
        assert ADDRESS in code
        exec(compile(code.replace(ADDRESS, served.address), "serving.md", "exec"), {})


def test_the_commands_and_options_exist(capsys: pytest.CaptureFixture[str]) -> None:
    from regard.cli.app import run

    commands = re.findall(r"^    (regard serve .*)$", PAGE, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert run([*shlex.split(command)[1:], "--help"]) == 0
    options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    assert set(re.findall(r"`(--[a-z][a-z-]+)", PAGE.partition("## Container")[0])) <= options


def test_the_unit_is_valid(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    (unit,) = blocks("ini")
    started = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    assert started.split()[0] == "ExecStart=/opt/regard/bin/regard"
    path = tmp_path / "regard.service"
    path.write_text(unit.replace("/opt/regard/bin/regard", "/bin/true"))  # the program must exist
    done = subprocess.run([program, "verify", str(path)], capture_output=True, text=True, check=False)
    problems = [line for line in done.stderr.splitlines() if "regard.service" in line]
    assert done.returncode == 0 and problems == []
