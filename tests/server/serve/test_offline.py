"""`regard serve` and the studio without a network: they start and answer, and they try to reach nobody.

In CI the sources run with sockets that refuse every address but the loopback; the long form runs the wheel in a network
namespace that has nothing but a loopback.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.serve_process import start_server
from tests.test_packages import ROOT, build

GUARD = """
import os, socket

def refuse(address):
    with open(os.environ["REGARD_TEST_ATTEMPTS"], "a") as file:
        file.write(f"{address!r}\\n")
    raise OSError(f"no network in this test: {address!r}")

def local(host):
    return host in (None, "", "localhost", "::1", "0.0.0.0") or str(host).startswith("127.")

def guarded(method):
    def call(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and not local(address[0]):
            refuse(address)
        return method(self, address)
    return call

socket.socket.connect = guarded(socket.socket.connect)
socket.socket.connect_ex = guarded(socket.socket.connect_ex)
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: resolve(host, *rest, **more) if local(host) else refuse(host)
"""


def test_the_server_tries_to_reach_nobody(
    model_folders: dict[str, Path], page_built: None, tmp_path: Path, door: Any
) -> None:
    (tmp_path / "sitecustomize.py").write_text(GUARD)
    attempts = tmp_path / "attempts"
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "REGARD_TEST_ATTEMPTS": str(attempts)}
    probe = [sys.executable, "-c", "import socket; socket.create_connection(('192.0.2.1', 80), 5)"]
    refused = subprocess.run(probe, env=env, capture_output=True, text=True, check=False)
    assert "no network in this test" in refused.stderr  # the guard works
    attempts.unlink()
    with start_server([str(model_folders["tiny-embed"])], door=door, env=env) as server:
        assert len(server.ask_json("/embed", {"inputs": "a film"})[0]) == 32
        assert server.ask_json("/v1/models")["data"]
    assert not attempts.exists()


@pytest.mark.long
def test_the_wheel_serves_without_a_network(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("network namespaces need Linux and iproute2")
    permitted = subprocess.run(["unshare", "--net", "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
    if permitted.returncode != 0:
        pytest.skip("network namespaces are not permitted here")
    with zipfile.ZipFile(build("wheel", ROOT, tmp_path)) as archive:
        archive.extractall(tmp_path / "installed")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "installed"), "HOME": str(tmp_path)}
    serve = f"ip link set lo up && exec {sys.executable} -m regard serve regard-embed --port 8765"
    with subprocess.Popen(["unshare", "--net", "sh", "-ec", serve], env=env, cwd=tmp_path) as process:
        try:
            inside = ["nsenter", "-t", str(process.pid), "--net", "--", sys.executable, "-c", ASK]
            end = time.monotonic() + 120
            while True:
                asked = subprocess.run(inside, env=env, capture_output=True, text=True, cwd=tmp_path, check=False)
                if asked.returncode == 0:
                    break
                assert process.poll() is None and time.monotonic() < end, asked.stderr
                time.sleep(0.5)
            found = json.loads(asked.stdout)
            assert found["width"] == 384 and found["file"].startswith(str(tmp_path))
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


ASK = """
import json, urllib.request, regard
request = urllib.request.Request("http://127.0.0.1:8765/embed", data=b'{"inputs": "a film"}')
request.add_header("Content-Type", "application/json")
with urllib.request.urlopen(request, timeout=30) as answer:
    print(json.dumps({"width": len(json.loads(answer.read())[0]), "file": regard.__file__}))
"""
