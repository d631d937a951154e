"""The studio as a program: immediate startup, a port in use, and a clean shutdown."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from regard.errors import InputError
from regard.render import bundle
from regard.server.run import HOST, listen, run_studio


def test_the_error_for_a_port_in_use_suggests_a_free_one() -> None:
    with listen(0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"port {port} is taken; .*regard studio --port \d+") as error:
            listen(port)
    free = int(str(error.value).split()[-1])
    assert free != port
    with listen(free or 0) as other:
        assert other.getsockname()[0] == HOST


def test_the_error_for_a_missing_build_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "is_built", lambda static: False)
    with pytest.raises(Exception, match=r"python web/build\.py"):
        run_studio(["regard-bert"], port=0)


@pytest.mark.parametrize("when", ["at once", pytest.param("when the model is there", marks=pytest.mark.long)])
@pytest.mark.usefixtures("default_sigint")
def test_the_page_is_served_while_the_model_loads_and_ctrl_c_exits_cleanly(page_built: None, when: str) -> None:
    command = [sys.executable, "-m", "regard", "studio", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        address = re.search(r"(http://127\.0\.0\.1:\d+/)\?token=(\S+)", process.stdout.readline())
        assert address is not None
        with urllib.request.urlopen(_request(*address.groups()), timeout=200) as answer:
            page = answer.read().decode()
        assert '"state":"loading"' in page  # importing torch alone takes longer than this response
        while when != "at once":
            with urllib.request.urlopen(_request(f"{address[1]}api/models", address[2]), timeout=200) as answer:
                if b'"ready"' in answer.read():
                    break
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=200) == 0
        assert re.fullmatch(r".*ended.*\n", process.stdout.read())
        assert process.stderr.read() == ""


@pytest.mark.long
@pytest.mark.parametrize("where", ["the line", "the loader", "the server"])
@pytest.mark.usefixtures("default_sigint")
def test_ctrl_c_before_the_server_runs_exits_cleanly(page_built: None, where: str) -> None:
    command = [sys.executable, "-c", EARLY, where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(" http")[0] for line in done.stdout.splitlines()] == [
        *("The studio is at", f"interrupted at {where}", "The studio has ended.", "True")
    ]


@pytest.mark.long
@pytest.mark.usefixtures("default_sigint")
def test_ctrl_c_does_not_wait_for_a_long_request(page_built: None, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "regard", "studio", "--port", "0"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None and process.stderr is not None
        address = re.search(r"(http://127\.0\.0\.1:\d+/)\?token=(\S+)", process.stdout.readline())
        assert address is not None
        request_thread = threading.Thread(target=_ask, args=(f"{address[1]}v1/compare", address[2]), daemon=True)
        request_thread.start()
        assert process.stderr.readline() == "computing\n"  # in the process of the model
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=200) == 0
        assert re.fullmatch(r".*ended.*\n", process.stdout.read())
        assert process.stderr.read() == ""  # and that process has ended too


EARLY = """
import signal, sys
import uvicorn
from regard.server.models.registry import ModelRegistry
from regard.server.run import run_studio

def interrupt(place):
    if place == sys.argv[1]:
        print("interrupted at", place)
        signal.raise_signal(signal.SIGINT)

def say(line):
    print(line)
    if "Ctrl-C ends it" in line:
        interrupt("the line")

async def prepare(registry):
    interrupt("the loader")

startup = uvicorn.Server.startup

async def start(server, sockets=None):
    interrupt("the server")
    await startup(server, sockets)

ModelRegistry.prepare, uvicorn.Server.startup = prepare, start
handler = signal.getsignal(signal.SIGINT)
run_studio(["regard-bert"], port=0, on_message=say)
print(signal.getsignal(signal.SIGINT) is handler)
"""
SLOW = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "regard.server.models.verb_job":
            sys.meta_path.remove(self)
            from regard.server.models import client_verbs
            import threading

            def compare(host, name, arguments):
                print("computing", file=sys.stderr, flush=True)
                threading.Event().wait()

            client_verbs.run_verb = compare

sys.meta_path.insert(0, Finder())
"""


def _request(address: str, token: str, data: bytes | None = None) -> urllib.request.Request:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    return urllib.request.Request(address, data=data, headers=headers)


def _ask(address: str, token: str) -> None:
    with contextlib.suppress(OSError):
        urllib.request.urlopen(_request(address, token, b"{}"), timeout=200)
