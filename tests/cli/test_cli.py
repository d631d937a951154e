"""The program `regard` itself: help, version, suggestions for misspelled names, and startup time."""

from __future__ import annotations

import os
import pty
import resource
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer

from regard.cli.app import build, verbs
from regard.verbs import find

REGARD = [sys.executable, "-m", "regard"]


def regard(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*REGARD, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=200)


def on_a_terminal(*arguments: str) -> str:
    """The program's output when stdout is a terminal."""
    reader, terminal = pty.openpty()
    process = subprocess.Popen(
        [*REGARD, *arguments], stdout=terminal, stderr=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm"}
    )
    os.close(terminal)
    written = b""
    try:
        while part := os.read(reader, 4096):
            written += part
    except OSError:  # Linux raises EIO when the other side is closed
        pass
    os.close(reader)
    process.wait(timeout=200)
    return written.decode()


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help_lists_the_verbs(arguments: list[str]) -> None:
    result = regard(*arguments)
    assert result.returncode == 0
    assert result.stderr == ""
    for verb in ("tour", "embed", "models", "--version", "--debug"):
        assert verb in result.stdout


@pytest.mark.parametrize("call", [regard, on_a_terminal])
def test_help_is_fast(call: object) -> None:
    """0.1 to 0.2 CPU seconds on an idle machine; the bound allows for a busy one, but not for importing torch."""
    assert callable(call)
    spent = []
    for _ in range(5):
        before = cpu_seconds()
        call("--help")
        spent.append(cpu_seconds() - before)
    assert min(spent) < 0.9, spent


@pytest.mark.parametrize("arguments", [["--help"], ["embed", "--help"], ["tour", "--help"], ["models", "--help"]])
def test_help_does_not_import_torch(arguments: list[str]) -> None:
    program = (
        "import sys; from regard.cli.app import run; code = run(sys.argv[1:]); "
        "heavy = {'torch', 'numpy', 'transformers', 'huggingface_hub', 'sklearn'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    result = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=200)
    assert (result.returncode, result.stderr) == (0, "")


NOT_ALONE = ("studio", "serve", "tour", "lesson", "train", "corpus", "honesty")


def test_a_command_is_built_alone() -> None:
    """Every verb is the same command with and without the others."""
    every: Any = typer.main.get_command(build(verbs()))
    alone = {name: verbs(name) for name in every.commands}
    assert {name for name, found in alone.items() if len(found) > 1} == set(NOT_ALONE)
    for name, found in alone.items():
        if len(found) == 1:
            command: Any = typer.main.get_command(build(found))
            aliases = () if name == "version" else find(name.replace("-", "_")).aliases  # the others are verbs
            assert list(command.commands) == [name, *aliases]
            options = [parameter.opts for parameter in every.commands[name].params]
            assert [parameter.opts for parameter in command.commands[name].params] == options


def test_embedding_imports_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a cat\n")
    program = (
        "import gc, sys; from regard.cli.app import run; code = run(sys.argv[1:]); assert gc.isenabled();"
        "print(*sys.modules); sys.exit(code)"
    )
    output = tmp_path / "vectors.npy"
    command = [sys.executable, "-c", program, "embed", str(tmp_path / "texts.txt"), "--output", str(output)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    imported = set(result.stdout.split())
    assert output.is_file()
    assert "torch" in imported
    assert {name for name in imported if name.startswith("regard.verbs.")} == {
        f"regard.verbs.{name}" for name in ("base", "bulk", "embed", "python", "tables")
    }
    heavy = {
        "torch._dynamo",
        "sympy",
        "huggingface_hub",
        "transformers",
        "sklearn",
        "pandas",
        "scipy",
        "pyarrow",
        "rich",
    }
    assert not (heavy | {"regard.inference.translation", "regard.inference.masked_lm", "regard.training"}) & imported


def test_help_is_formatted_on_terminals_and_plain_in_pipes() -> None:
    assert "╭" in on_a_terminal("--help")
    piped = regard("--help").stdout
    assert "╭" not in piped
    assert "\x1b" not in piped


def test_module_and_script_are_the_same_program() -> None:
    script = Path(sys.executable).with_name("regard")
    result = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=200)
    assert (result.returncode, result.stdout) == (0, f"regard {version('regard')}\n")
    assert regard("--version").stdout == result.stdout


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["embd", "a.txt"], "No such command 'embd'. Did you mean 'embed'?"),
        (["embed", "a.txt", "--modle", "x"], "--model"),
        (["embed", "a.txt", "--device", "gpu"], "'gpu' is not one of 'auto', 'cpu', 'cuda'"),
    ],
)
def test_misspelled_names_get_a_suggestion(arguments: list[str], hint: str) -> None:
    result = regard(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert hint in result.stderr
    assert result.stderr.count("\n") == 1
