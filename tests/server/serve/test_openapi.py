"""schemathesis over the server's OpenAPI description: no 5xx, and every response conforms to the description."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.serve_process import ServerProcess
from tests.server.serve.conftest import KEY

pytest.importorskip("schemathesis")

# Without a value each: checks that the description's responses are what the server sends.
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
VERBS = r"^/v1/(fill|tokenize|embed)$"
SERVED = (
    r"^/(embed(_all)?|rerank|predict|similarity|tokenize|info|health|metrics"
    r"|v1/(embeddings|(chat/)?completions|rerank|models))$"
)


def examine(server: ServerProcess, folder: Path, *, include: str, examples: int) -> str:
    program = shutil.which("schemathesis", path=str(Path(sys.executable).parent)) or shutil.which("schemathesis")
    assert program is not None
    command = [program, "run", f"{server.address}/openapi.json", "--checks", CHECKS, "--seed", "1"]
    command += [
        "--max-examples",
        str(examples),
        "--include-path-regex",
        include,
        "--header",
        f"Authorization: Bearer {KEY}",
    ]
    command += ["--phases", "examples,coverage,fuzzing", "--request-timeout", "60", "--no-color", "--workers", "1"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.long
def test_the_endpoints_of_other_clients_conform(server: ServerProcess, tmp_path: Path) -> None:
    output = examine(server, tmp_path, include=SERVED, examples=5)
    assert re.search(r"(\d+) passed", output) or "No issues found" in output


@pytest.mark.long
def test_verbs_conform(server: ServerProcess, tmp_path: Path) -> None:
    examine(server, tmp_path, include=VERBS, examples=2)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_endpoint_conforms(server: ServerProcess, tmp_path: Path) -> None:
    examine(server, tmp_path, include=".*", examples=100)
