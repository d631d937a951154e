"""Malformed requests to `regard serve`, from a fixed seed: HTTP, JSON, types, sizes, encodings, and clients that leave.

`fuzz` sends them and returns what came back. Knows the server's endpoints, but not which answer is right beyond this:
every request is answered, no answer is 5xx, and memory does not grow.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from benchmarks import studio_load
from benchmarks.serve_process import ServerProcess

TEXT = "The animal did not cross the street because it was too tired."
CLIENTS = 8
KEPT_FAILURES = 20
SETTLE_SECONDS = 3.0  # after which an idle server has returned the memory of its batches
VALID: dict[str, dict[str, Any]] = {
    "/embed": {"inputs": TEXT, "normalize": True, "truncate": True},
    "/embed_all": {"inputs": TEXT, "truncate": True},
    "/rerank": {"query": "a film", "texts": [TEXT, "a film"], "raw_scores": False, "return_text": True},
    "/predict": {"inputs": TEXT, "raw_scores": False, "truncate": True},
    "/similarity": {"inputs": {"source_sentence": TEXT, "sentences": ["a film", "a day"]}},
    "/tokenize": {"inputs": TEXT, "add_special_tokens": True},
    "/v1/embeddings": {"input": TEXT, "model": "", "encoding_format": "float", "dimensions": 8, "user": "me"},
    "/v1/completions": {
        "prompt": "The film",
        "model": "",
        "max_tokens": 2,
        "temperature": 0,
        "stop": ["."],
        "seed": 1,
        "logprobs": 1,
        "n": 1,
    },
    "/v1/chat/completions": {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT}],
        "model": "",
        "max_tokens": 2,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 1,
    },
    "/v1/fill": {"text": "a good _", "model": ""},
    "/v1/look": {"text": TEXT, "model": ""},
}
VERBS = ("/v1/fill", "/v1/look")
READ = ("/health", "/info", "/metrics", "/v1/models", "/openapi.json", "/v1/openapi.json", "/")
Malformed = Callable[[ServerProcess, list[str], random.Random], bytes]


def valid_request(server: ServerProcess, models: list[str], rng: random.Random, path: str) -> dict[str, Any]:
    """Valid arguments for this path, with the name of one of the models where one is needed: for verbs the first, since
    each model has another process for them."""
    arguments = dict(VALID[path])
    if "model" in arguments:
        arguments["model"] = models[0] if path in VERBS else rng.choice(models)
    return arguments


def _json_request(server: ServerProcess, path: str, arguments: object, **options: Any) -> bytes:
    return server.request(path, json.dumps(arguments).encode("utf-8", "surrogatepass"), **options)


def _odd_value(rng: random.Random, depth: int = 0) -> object:
    scalar: list[object] = [
        None,
        True,
        -1,
        0,
        1e308,
        -1e308,
        10**30,
        rng.randint(-(2**63), 2**63),
        "",
        " \n\t",
        "\x00",
        "\ud800",
        "\u202e😀",
        "nan",
        "9" * 5000,
        "../../../../etc/passwd",
        "/dev/zero",
        "x" * rng.choice([1000, 20_001, 300_001]),
        "a word\n" * rng.randint(1, 50),
        "".join(chr(rng.randint(0, 0x10FFFF)) for _ in range(50)),
        rng.random(),
    ]
    if depth > 2 or rng.random() < 0.6:
        return rng.choice(scalar)
    if rng.random() < 0.5:
        return [_odd_value(rng, depth + 1) for _ in range(rng.choice([0, 1, 2, 5, 40]))]
    return {str(_odd_value(rng, 3))[:20]: _odd_value(rng, depth + 1) for _ in range(rng.choice([0, 1, 3]))}


def _bad_arguments(server: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    path = rng.choice([*VALID])
    arguments = valid_request(server, models, rng, path)
    for key in rng.sample([*arguments], k=rng.randint(1, len(arguments))):
        if rng.random() < 0.2:
            del arguments[key]
        else:
            arguments[key] = _odd_value(rng)
    if rng.random() < 0.3:
        more = (
            "stream",
            "echo",
            "suffix",
            "best_of",
            "top_p",
            "prompt_name",
            "truncation_direction",
            "texts",
            "x" * 50,
        )
        arguments[rng.choice(more)] = _odd_value(rng)
    return _json_request(server, path, arguments)


def _bad_tokens(server: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    ids: list[object] = [
        [],
        [[]],
        [1, "a"],
        [[1], "a"],
        [-1],
        [2**40],
        [1.5],
        [None],
        [[1, 2], [10**9]],
        list(range(20_000)),
        [True, False],
    ]
    name = rng.choice(["input", "inputs", "prompt"])
    path = {"input": "/v1/embeddings", "inputs": "/embed", "prompt": "/v1/completions"}[name]
    arguments = valid_request(server, models, rng, path)
    return _json_request(server, path, {**arguments, name: rng.choice(ids)})


def _too_many_inputs(server: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    path, name = rng.choice([("/embed", "inputs"), ("/v1/embeddings", "input"), ("/predict", "inputs")])
    arguments = valid_request(server, models, rng, path)
    return _json_request(server, path, {**arguments, name: ["a"] * rng.choice([2000, 5000, 50_000])})


def _bad_json(server: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    bodies = [
        b"{",
        b"",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"[]",
        b"null",
        b"NaN",
        b"1",
        b'"a"',
        b'{"inputs": Infinity}',
        b"[" * rng.randint(1, 200_000),
        b'{"a":' * rng.randint(1, 50_000),
        b'{"inputs": ' + b"9" * 100_000 + b"}",
        b'{"inputs": "\\ud800"}',
        b'{"inputs": "\\ud800"',
        b'{"inputs": "a", "inputs": 1}',
        b"{'inputs': 'a'}",
        b'{"inputs": "a",}',
        '{"inputs": "für"}'.encode("latin-1"),
        '{"inputs": "a"}'.encode("utf-16"),
        rng.randbytes(rng.randint(1, 100_000)),
    ]
    return server.request(rng.choice([*VALID]), rng.choice(bodies))


def _bad_content_type(server: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    kinds = [
        "text/plain",
        "",
        "\xff",
        "a" * 500,
        "multipart/form-data; boundary=x",
        "application/x-www-form-urlencoded",
    ]
    kinds += ["application/json; charset=utf-16", "application/json;charset=\xff"]
    extra = rng.choice(
        ["", "Content-Encoding: gzip", "Content-Encoding: br", "Expect: 100-continue", "Accept: image/png"]
    )
    path = rng.choice([*VALID])
    arguments = valid_request(server, models, rng, path)
    return _json_request(server, path, arguments, content_type=rng.choice(kinds), headers=extra)


def _too_large(server: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    size = rng.choice([2_100_000, 3_000_000, 5_000_000])
    return server.request(rng.choice([*VALID]), b'{"inputs": "' + b"a" * size + b'"}')


def _bad_path(server: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    path = rng.choice(
        [*VALID, *READ, "/%00", "/..%2f..%2fetc/passwd", "//", "/v1/", "/v1/%ff%fe", "/v1/embed/x/y", "/?a=b", "/v1"]
    )
    method = rng.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW"])
    return server.request(path + rng.choice(["", "/", "?x=" + "y" * 3000, "#a", "%20"]), b"{}", method=method)


def _bad_key(server: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    body = json.dumps({"inputs": TEXT}).encode() * rng.choice([1, 1, 1, 40_000])
    key = rng.choice(
        ["Bearer wrong", "Bearer", "Basic dXNlcjpwYXNz", "Bearer " + "x" * 5000, "\xff\xfe", "Bearer \xe9"]
    )
    head = f"POST {rng.choice([*VALID])} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {key}\r\nConnection: close\r\n"
    return (head + f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode("latin-1") + body


def _request_id(server: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    value = rng.choice(["", "a" * 5000, "\xff", '"}{', "a b\tc", "%0d%0aSet-Cookie:x"])
    return _json_request(server, "/embed", {"inputs": _odd_value(rng)}, headers=f"X-Request-Id: {value}")


def _malformed_http(server: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    """Request lines, headers and chunks that are not HTTP: those of the studio's benchmark."""
    kind = rng.choice(["bad request line", "bad header", "bad chunks"])
    return studio_load.MALFORMED[kind](server, models, rng)  # type: ignore[arg-type]


def _client_leaves(server: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    path = rng.choice([*VALID])
    whole = _json_request(server, path, valid_request(server, models, rng, path))
    return whole[: rng.randint(1, len(whole))]


MALFORMED: dict[str, Malformed] = {
    "bad arguments": _bad_arguments,
    "bad tokens": _bad_tokens,
    "too many inputs": _too_many_inputs,
    "bad JSON": _bad_json,
    "bad content type": _bad_content_type,
    "too large": _too_large,
    "bad path": _bad_path,
    "bad key": _bad_key,
    "request id": _request_id,
    "malformed HTTP": _malformed_http,
    "client leaves": _client_leaves,
}


async def fuzz(server: ServerProcess, models: list[str], requests: int, *, seed: int = 0) -> dict[str, Any]:
    """Send malformed requests, eight at a time, after valid ones have warmed the server up.

    The warm-up has small requests to every endpoint, and the largest ones that the server accepts: what their batches
    and buffers need is part of a working server.
    """
    rng = random.Random(seed)
    large: list[dict[str, Any]] = [{"inputs": ["a film"] * 2048}, {"inputs": "a film " * 500_000, "truncate": True}]
    for model in models:
        for arguments in large:
            await studio_load.send(server, _json_request(server, "/embed", {**arguments, "model": model}))  # type: ignore[arg-type]
    for _ in range(3):
        for path in VALID:
            for model in models:
                arguments = valid_request(server, [model], rng, path)
                await studio_load.send(server, _json_request(server, path, arguments))  # type: ignore[arg-type]
    await asyncio.sleep(SETTLE_SECONDS)
    before, peak = server.memory_by_process, 0.0
    statuses, outcomes, failures = Counter[str](), Counter[str](), list[str]()
    by_kind: dict[str, Counter[str]] = {kind: Counter() for kind in MALFORMED}
    remaining = requests

    async def client() -> None:
        nonlocal remaining, peak
        while remaining > 0:
            remaining -= 1
            kind = rng.choice([*MALFORMED])
            content = MALFORMED[kind](server, models, rng)
            leaves = kind == "client leaves"
            answer = await studio_load.send(server, content, disconnect=leaves, timeout=60.0)  # type: ignore[arg-type]
            if remaining % 100 == 0:
                peak = max(peak, server.memory_mb)
            if leaves:
                continue
            statuses[str(answer.status)] += 1
            by_kind[kind][str(answer.status)] += 1
            outcome = ""
            if answer.reset and not answer.status:
                outcome = "reset"
            elif not answer.status:
                outcome = "no answer"
            elif answer.status >= 500:
                outcome = "5xx"
            if outcome:
                outcomes[outcome] += 1
                if len(failures) < KEPT_FAILURES:
                    failures.append(f"{kind}: {outcome} {answer.status} {answer.body[:200]!r} to {content[:300]!r}")

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    seconds = time.perf_counter() - begin
    await asyncio.sleep(SETTLE_SECONDS)
    after = server.memory_by_process
    growth = {name: round(size - before.get(name, 0.0), 1) for name, size in after.items()}
    return {
        "requests": requests,
        "seconds": round(seconds, 1),
        "statuses": dict(sorted(statuses.items())),
        "by kind": {kind: dict(sorted(found.items())) for kind, found in by_kind.items()},
        "5xx": outcomes["5xx"],
        "resets": outcomes["reset"],
        "no answer": outcomes["no answer"],
        "memory MB": {
            "after warm-up": round(sum(before.values())),
            "after": round(sum(after.values())),
            "highest": round(peak),
        },
        "growth MB": round(sum(growth.values()), 1),
        "growth MB by process": growth,
        "wrong": failures,
    }
