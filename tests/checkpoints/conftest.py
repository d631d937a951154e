"""A fake Hugging Face hub on 127.0.0.1 that answers `huggingface_hub`, logs requests, and can cut a transfer."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


@dataclass
class FakeHub:
    """Repositories as {name: {file: bytes}}; `log` holds (method, path) of every request, `ranges` (path, Range).

    `tags` are {name: {tag: files}}: other contents of a repository. `redirects`: files come from another path of this
    host. `limited` is the number of requests that are answered with 429.
    """

    models: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    down: bool = False
    plain_errors: bool = False
    tells_sizes: bool = True
    cuts: dict[str, int] = field(default_factory=dict)
    tags: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    redirects: bool = False
    limited: int = 0
    login_required: set[str] = field(default_factory=set)
    ranges: list[tuple[str, str]] = field(default_factory=list)
    log: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""

    def commit(self, name: str, tag: str = "main") -> str:
        """A commit hash that depends on the content."""
        digest = hashlib.sha1()
        for file, data in sorted(self.files(name, tag).items()):
            digest.update(file.encode() + b"\0" + data)
        return digest.hexdigest()

    def files(self, name: str, tag: str = "main") -> dict[str, bytes]:
        return self.models[name] if tag == "main" else self.tags[name][tag]

    def resolve(self, name: str, revision: str) -> str | None:
        """The tag, or main, that a revision names."""
        tags = ("main", *self.tags.get(name, ()))
        return next((tag for tag in tags if revision in (tag, self.commit(name, tag))), None)

    def transferred(self) -> list[str]:
        """The names of the files that were downloaded, in order."""
        found = (re.search(r"/resolve/[^/]+/(.+)$", path) for method, path in self.log if method == "GET")
        return [match[1] for match in found if match]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        path = self.path.partition("?")[0]
        self.hub.log.append((self.command, path))
        if "Range" in self.headers:
            self.hub.ranges.append((path, self.headers["Range"]))
        if self.hub.down:
            return self.send(503, b"down")
        if self.hub.limited > 0:
            self.hub.limited -= 1
            return self.send(429, b"slow down", {"Retry-After": "1"})
        if path.startswith("/cdn/"):
            path = path.removeprefix("/cdn")
        requested = re.fullmatch(
            r"/api/models/(?P<name>.+)/(?P<what>revision|tree)/(?P<revision>[^/]+)(?P<file>)", path
        )
        requested = requested or re.fullmatch(r"/(?P<name>.+)/(?P<what>resolve)/(?P<revision>[^/]+)/(?P<file>.+)", path)
        if requested is None or requested["name"] not in self.hub.models:
            return self.send(404, b"", {} if self.hub.plain_errors else {"X-Error-Code": "RepoNotFound"})
        if requested["name"] in self.hub.gated | self.hub.login_required:
            status = 401 if requested["name"] in self.hub.login_required else 403
            return self.send(status, b"", {"X-Error-Code": "GatedRepo"})
        tag = self.hub.resolve(requested["name"], requested["revision"])
        if tag is None:
            return self.send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        files, commit = self.hub.files(requested["name"], tag), self.hub.commit(requested["name"], tag)
        if requested["what"] == "revision":
            siblings = [
                {"rfilename": f, **({"size": len(d), "blobId": self.etag(d)} if self.hub.tells_sizes else {})}
                for f, d in files.items()
            ]
            about = {"id": requested["name"], "sha": commit, "siblings": siblings}
            return self.send(200, json.dumps(about).encode())
        if requested["what"] == "tree":
            tree = [{"type": "file", "path": f, "size": len(d), "oid": self.etag(d)} for f, d in files.items()]
            return self.send(200, json.dumps(tree).encode())
        if requested["file"] not in files:
            return self.send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        if self.hub.redirects and not self.path.startswith("/cdn/"):
            data = files[requested["file"]]
            linked = {"X-Linked-Etag": f'"{self.etag(data)}"', "X-Linked-Size": str(len(data)), "X-Repo-Commit": commit}
            return self.send(302, b"", {**linked, "Location": "/cdn" + self.path})
        self.send_file(requested["file"], files[requested["file"]], commit)

    @staticmethod
    def etag(data: bytes) -> str:
        return hashlib.sha1(data).hexdigest()

    def send_file(self, name: str, data: bytes, commit: str) -> None:
        headers = {"ETag": f'"{self.etag(data)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        status, body = 200, data
        if part:
            last = min(int(part[2] or len(data) - 1), len(data) - 1)
            status, body = 206, data[int(part[1]) : last + 1]
            headers["Content-Range"] = f"bytes {part[1]}-{last}/{len(data)}"
        if self.command == "GET" and self.hub.cuts.get(name, 0) > 0:
            self.hub.cuts[name] -= 1
            self.send(status, body[: len(body) // 2], headers, length=len(body))
            self.close_connection = True
            return
        self.send(status, body, headers)

    def send(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, *, length: int | None = None
    ) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A hub for this process, with its own empty cache; `hub.url` is its address."""
    from huggingface_hub import constants

    hub = FakeHub()
    handler = type("BoundHandler", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    # The library reads these when it is imported.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    yield hub
    server.shutdown()
    server.server_close()
    thread.join()
