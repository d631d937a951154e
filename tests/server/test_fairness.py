"""One client and the others: verbs keep off the serving path, end with their budget, and leave no texts on disk."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.serve_process import ServerProcess, descendants, start_server
from regard.errors import InputError
from regard.events import drain
from regard.files.durable_folder import lock_folder
from regard.inference.load_model import load_model
from regard.interpret.attention.maps import AttentionRecord
from regard.server.models.client_verbs import MAX_ANSWER
from regard.server.models.verb_job import ProcessModels, VerbJob

TEXTS = ["the film was good", "a bad day", "they love it", "the water is hot", "people call him a lot"]
ENDLESS = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "regard.server.models.served_model":
            sys.meta_path.remove(self)
            import regard.inference.search.clusters as clusters
            clusters.MAX_ITERATIONS, clusters.TOLERANCE = 10**9, -1.0

sys.meta_path.insert(0, Finder())
"""


@pytest.fixture(scope="module")
def endless(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server in which k-means never converges; a verb may take 5 seconds."""
    folder = tmp_path_factory.mktemp("endless")
    (folder / "sitecustomize.py").write_text(ENDLESS)
    with start_server([f"tiny={tiny_bert_folder}"], "--verb-timeout", "5", env=environment(folder)) as started:
        assert started.ask("/v1/fill", FILL)[0] == 200  # starts the process for verbs
        yield started


FILL = {"text": "a good _", "model": "tiny"}
CLUSTER = {"source": TEXTS, "num_clusters": 2, "model": "tiny"}


def environment(path: Path | None = None, **variables: str) -> dict[str, str]:
    paths = [str(path)] if path is not None else []
    paths += [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    return {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(paths)}


def message(body: bytes) -> str:
    return str(json.loads(body)["error"])


def model_of(door: str, folder: Path) -> tuple[str, str]:
    """A model as it is given to a server, and what this one then calls it."""
    return (str(folder), str(folder)) if door == "studio" else (f"tiny={folder}", "tiny")


@pytest.fixture(scope="module")
def opened(door: Any, tiny_bert_folder: Path, page_built: None) -> Iterator[tuple[ServerProcess, str]]:
    """A server for programs, and a studio, each with the name of its model."""
    model, name = model_of(door, tiny_bert_folder)
    with start_server([model], door=door) as started:
        assert started.ask("/v1/fill", {**FILL, "model": name})[0] == 200  # starts the process for verbs
        assert started.ask("/embed", {"inputs": TEXTS})[0] == 200
        yield started, name


def test_embed_is_answered_while_a_verb_is_held(opened: tuple[ServerProcess, str]) -> None:
    """The process that computes the verb is stopped until another client has its vectors."""
    server, name = opened
    before = set(descendants(server.process.pid))
    (verbs,) = [pid for pid in before if Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b" verbs\0")]
    assert len(before) == 2
    with ThreadPoolExecutor(1) as pool:
        os.kill(verbs, signal.SIGSTOP)
        try:
            held = pool.submit(server.ask, "/v1/fill", {**FILL, "model": name})
            assert server.ask("/embed", {"inputs": TEXTS})[0] == 200
            assert not held.done()
        finally:
            os.kill(verbs, signal.SIGCONT)
        assert held.result()[0] == 200
    assert set(descendants(server.process.pid)) == before


def test_longer_lists_than_a_door_takes_are_refused(opened: tuple[ServerProcess, str], door: str) -> None:
    server, name = opened
    count = 20_001 if door == "studio" else 2049
    for path, field in (("embed", "source"), ("perplexity", "source"), ("predict", "source"), ("search", "query")):
        arguments = {"source": TEXTS, field: ["a"] * count, "model": name}
        status, _, body = server.ask(f"/v1/{path}", arguments)
        assert status == 422 and f"{count:,} items" in message(body) and f"at most {count - 1:,}" in message(body)
    status, _, body = server.ask("/embed", {"inputs": ["a"] * 2049})
    assert status == 422 and "2,048" in message(body)


def test_no_request_writes_a_file_or_reads_another_model(
    opened: tuple[ServerProcess, str], door: str, tmp_path: Path
) -> None:
    server, name = opened
    (tmp_path / "secret.txt").write_text("zebras\n")
    written = tmp_path / "written.npy"
    assert b"zebras" not in server.ask("/v1/tokenize", {"source": str(tmp_path / "secret.txt"), "model": name})[2]
    assert server.ask("/v1/embed", {"source": TEXTS, "model": name, "output": str(written)})[0] == 422
    assert not written.exists()
    for other in (str(tmp_path), "/etc", "owner/model", "../tiny"):
        for path, arguments in (("/v1/fill", FILL), ("/embed", {"inputs": TEXTS})):
            status, _, body = server.ask(path, {**arguments, "model": other})
            assert status == (422 if door == "studio" else 404) and f"has no model {other!r}" in message(body)
    for verb in ("train", "pretrain", "export", "index", "doctor", "studio"):
        assert server.ask(f"/v1/{verb}", {})[0] == 404


def test_the_log_has_no_texts(opened: tuple[ServerProcess, str]) -> None:
    server, name = opened
    assert server.ask("/embed", {"inputs": "a sentence about zebras"})[0] == 200
    assert server.ask("/v1/fill", {"text": "zebras are _", "model": name})[0] == 200
    assert server.ask("/embed", {"inputs": ["zebras"] * 5000})[0] == 422
    assert server.ask("/v1/fill", {"text": "zebras", "model": name, "top": "zebras"})[0] == 422
    assert "zebra" not in server.log.read_text()


@pytest.mark.long
def test_a_killed_process_is_restarted_and_its_requests_get_503(opened: tuple[ServerProcess, str]) -> None:
    server, _ = opened
    for pid in descendants(server.process.pid):
        os.kill(pid, signal.SIGKILL)
    statuses = []
    while statuses[-1:] != [200]:
        status, headers, _ = server.ask("/embed", {"inputs": TEXTS})
        statuses.append(status)
        assert status == 200 or (status == 503 and "retry-after" in headers)


@pytest.mark.long
def test_a_verb_ends_with_its_budget_and_its_process_goes_on(endless: ServerProcess) -> None:
    pids = descendants(endless.process.pid)
    status, _, body = endless.ask("/v1/cluster", CLUSTER)
    assert status == 504 and "--verb-timeout" in message(body)
    assert endless.ask("/v1/fill", FILL)[0] == 200
    assert descendants(endless.process.pid) == pids


@pytest.mark.long
def test_a_verb_ends_when_its_client_goes(tiny_bert_folder: Path, tmp_path: Path) -> None:
    """The next verb could not be answered otherwise: there is no budget to speak of."""
    (tmp_path / "sitecustomize.py").write_text(ENDLESS)
    options = ["--verb-timeout", "3000", "--request-timeout", "6000"]
    with start_server([f"tiny={tiny_bert_folder}"], *options, env=environment(tmp_path)) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(server.request("/v1/cluster/events", json.dumps(CLUSTER).encode()))
            received = b""
            while b'"clustering"' not in received:
                received += client.recv(4096)
        pids = descendants(server.process.pid)
        assert server.ask("/v1/fill", FILL)[0] == 200
        assert descendants(server.process.pid) == pids


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("/v1/embed", {"source": ["a"] * 2049}),
        ("/v1/embed", {"source": "a\n" * 2049}),
        ("/v1/perplexity", {"source": ["a"] * 2049}),
        ("/v1/predict", {"source": [["a"] * 2049]}),
        ("/v1/search", {"source": TEXTS, "query": ["a"] * 2049}),
        ("/v1/search", {"source": ["a film"] * 1000, "query": ["a"] * 400, "top": 1000}),
        ("/v1/search", {"source": ["a film " * 1000] * 500, "query": ["a"] * 100, "top": 400}),
        ("/v1/embed", {"source": ["a"] * 2048, "layers": "concat(0:)"}),
        ("/v1/tokenize", {"source": ["a film " * 100] * 600}),
    ],
)
def test_more_than_the_limits_is_refused_before_it_is_computed(
    endless: ServerProcess, path: str, arguments: dict[str, Any]
) -> None:
    status, _, body = endless.ask(path, {**arguments, "model": "tiny"})
    assert status == 422 and "at most" in message(body)


@pytest.mark.long
def test_what_is_asked_is_answered_after_sigterm(tiny_bert_folder: Path, page_built: None, door: Any) -> None:
    """Also what the model has not begun with: its process stands still until the server was told to end."""
    model, name = model_of(door, tiny_bert_folder)
    count = 16 if door == "studio" else 24  # a studio answers so many requests of one client at a time
    with start_server([model], door=door) as server, ThreadPoolExecutor(count) as pool:
        assert server.ask("/embed", {"inputs": TEXTS})[0] == 200
        processes = descendants(server.process.pid)
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        try:
            asked = [pool.submit(server.ask, "/embed", {"inputs": TEXTS, "model": name}) for _ in range(count)]
            while server.metrics()["te_request_count"] <= count:
                pass
            server.process.send_signal(signal.SIGTERM)
        finally:
            for pid in processes:
                os.kill(pid, signal.SIGCONT)
        assert [one.result()[0] for one in asked] == [200] * count
        assert server.process.wait(60) == 0
        assert not any(os.path.exists(f"/proc/{pid}") for pid in processes)
        assert "Traceback" not in server.log.read_text()


def test_maps_of_a_long_text_are_refused_before_they_are_written(
    tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 tokens in 48 heads are 100 MB of JSON, which takes a gigabyte to write."""
    folder = str(tiny_bert_folder)
    job = VerbJob(ProcessModels("tiny", load_model(folder), {"tiny": folder}))
    monkeypatch.setitem(MAX_ANSWER, "bytes", 200)
    monkeypatch.setattr(AttentionRecord, "to_dict", lambda self: pytest.fail("the maps were written"))
    request = {"verb": "look", "arguments": {"text": "a good film", "model": "tiny"}, "form": "document"}
    with pytest.raises(InputError, match="sends at most 200"):
        drain(job({**request, "seconds": 60.0, "max_items": 10, "paths": {}, "images": None}, threading.Event(), print))


@pytest.mark.long
def test_verbs_have_the_batch_size_of_the_other_paths(tiny_bert_folder: Path) -> None:
    with start_server([f"tiny={tiny_bert_folder}"], "--max-client-batch-size", "4") as server:
        assert server.ask("/embed", {"inputs": TEXTS})[0] == 422
        assert server.ask("/v1/embed", {"source": TEXTS, "model": "tiny"})[0] == 422
        assert len(server.ask_json("/v1/embed", {"source": TEXTS[:4], "model": "tiny"})["vectors"]) == 4


@pytest.mark.long
def test_no_text_of_a_client_stays_on_disk(tiny_bert_folder: Path, page_built: None, tmp_path: Path, door: Any) -> None:
    """Neither after a graceful stop nor, once another server starts, after SIGKILL."""
    env = environment(TMPDIR=str(tmp_path))
    foreign = tmp_path / "regard-server-of-somebody"
    foreign.mkdir()
    (tmp_path / "a file").write_text("not ours")
    model, name = model_of(door, tiny_bert_folder)
    arguments = {"source": TEXTS, "model": name}

    def ask(server: ServerProcess) -> None:
        for path, more in (("search", {"query": ["film"]}), ("duplicates", {}), ("cluster", {"num_clusters": 2})):
            assert server.ask(f"/v1/{path}", {**arguments, **more})[0] == 200

    def left() -> set[str]:
        return {entry.name for entry in tmp_path.iterdir()} - {"regard-server-of-somebody", "a file"}

    with start_server([model], door=door, env=env) as killed:
        ask(killed)
        (folder,) = left()  # all of it in one folder
        killed.process.kill()
        killed.process.wait()
    assert left() == {folder}
    with (
        lock_folder(tmp_path / "regard-server-in-use"),
        start_server([model], door=door, env=env) as server,
    ):
        assert folder not in left() and "regard-server-in-use" in left()
        ask(server)
    assert left() == {"regard-server-in-use"} and foreign.is_dir()
