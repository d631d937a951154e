"""The official `openai` client against a running server: embeddings, completions, models and errors."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from benchmarks.serve_process import ServerProcess, start_server
from tests.server.serve.conftest import EMBED, GPT, KEY, TEXTS

openai = pytest.importorskip("openai")


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def vectors(model_folders: dict[str, Path]) -> Any:
    """The library's vectors of TEXTS."""
    return regard.embed(TEXTS, model=str(model_folders[EMBED]), normalize=True).vectors


def cosines(first: Any, second: Any) -> Any:
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    return (first * second).sum(-1) / np.linalg.norm(first, axis=-1) / np.linalg.norm(second, axis=-1)


# -- embeddings


@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_embeddings_equal_the_library(client: Any, vectors: Any, encoding: str | None) -> None:
    options = {} if encoding is None else {"encoding_format": encoding}
    answer = client.embeddings.create(model=EMBED, input=TEXTS, **options)
    assert answer.object == "list" and answer.model == EMBED
    assert [one.index for one in answer.data] == list(range(len(TEXTS)))
    found = [one.embedding for one in answer.data]
    if encoding == "base64":  # the client decodes it only if it has asked for it on its own
        found = [np.frombuffer(base64.b64decode(one), np.float32) for one in found]
    assert np.allclose(cosines(found, vectors), 1.0, atol=1e-5, rtol=0)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > len(TEXTS)


def test_one_text_and_a_list_of_one_are_the_same(client: Any, vectors: Any) -> None:
    one = client.embeddings.create(model=EMBED, input=TEXTS[0], encoding_format="float").data
    listed = client.embeddings.create(model=EMBED, input=[TEXTS[0]], encoding_format="float").data
    assert len(one) == len(listed) == 1
    assert np.allclose(cosines(one[0].embedding, listed[0].embedding), 1.0, atol=1e-5, rtol=0)
    assert np.allclose(cosines(one[0].embedding, vectors[0]), 1.0, atol=1e-5, rtol=0)


def test_dimensions_cut_and_normalize(client: Any, vectors: Any) -> None:
    answer = client.embeddings.create(model=EMBED, input=TEXTS, dimensions=8, encoding_format="float")
    found = np.array([one.embedding for one in answer.data])
    assert found.shape == (len(TEXTS), 8)
    assert np.allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)
    assert np.allclose(cosines(found, vectors[:, :8]), 1.0, atol=1e-5, rtol=0)


@pytest.fixture(scope="module")
def reading_ids(model_folders: dict[str, Path]) -> Iterator[ServerProcess]:
    """A server that reads token ids and cuts texts that are too long."""
    folders = [str(model_folders[name]) for name in (EMBED, GPT)]
    with start_server(folders, "--accept-token-ids", "--auto-truncate") as started:
        yield started


def test_token_ids_are_refused_with_what_the_client_can_do(client: Any, server: ServerProcess) -> None:
    """Clients count tokens with a tokenizer of OpenAI's: its ids are other words for this model."""
    for ids in ([[791, 4632], [374]], [791, 4632]):
        with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False") as error:
            client.embeddings.create(model=EMBED, input=ids)
        assert error.value.param == "input" and "--accept-token-ids" in str(error.value)
        with pytest.raises(openai.BadRequestError, match="--accept-token-ids") as error:
            complete(client, prompt=ids)
        assert error.value.param == "prompt" and "check_embedding" not in str(error.value)
        status, _, body = server.ask("/embed", {"inputs": ids})
        assert status == 422 and b"--accept-token-ids" in body


def test_a_server_with_the_option_reads_token_ids(
    reading_ids: ServerProcess, vectors: Any, model_folders: dict[str, Path]
) -> None:
    _, tokenizer = regard.load(model_folders[EMBED])
    ids = [tokenizer.encode(text).ids[1:-1] for text in TEXTS]  # clients count without the special tokens
    with openai.OpenAI(base_url=f"{reading_ids.address}/v1", api_key="none", max_retries=0) as client:
        answer = client.embeddings.create(model=EMBED, input=ids, encoding_format="float")
        single = client.embeddings.create(model=EMBED, input=ids[2], encoding_format="float")
        _, words = regard.load(model_folders[GPT])
        prompts = ["the film", words.encode("the film").ids]
        texts = [complete(client, prompt=prompt).choices[0].text for prompt in prompts]
        scored = [complete(client, prompt=prompt, echo=True, logprobs=1, max_tokens=1).choices[0] for prompt in prompts]
    assert np.allclose(cosines([one.embedding for one in answer.data], vectors), 1.0, atol=1e-5, rtol=0)
    assert len(single.data) == 1 and cosines(single.data[0].embedding, vectors[2]) == pytest.approx(1.0, abs=1e-5)
    assert texts[0] == texts[1]
    assert scored[0].text == scored[1].text and scored[0].text.startswith("the film")
    assert scored[0].logprobs == scored[1].logprobs and scored[0].logprobs.token_logprobs[0] is None
    assert np.allclose(reading_ids.ask_json("/embed", {"inputs": ids}), vectors, atol=1e-5)


def test_many_clients_in_one_batch_get_their_own_vectors(client: Any, model_folders: dict[str, Path]) -> None:
    texts = [f"{text} and {number} more" for number in range(24) for text in TEXTS]
    expected = regard.embed(texts, model=str(model_folders[EMBED]), normalize=True).vectors

    def ask(number: int) -> Any:
        count = 1 + number % 3
        answer = client.embeddings.create(model=EMBED, input=texts[number : number + count], encoding_format="float")
        return np.array([one.embedding for one in answer.data]), expected[number : number + count]

    with ThreadPoolExecutor(16) as pool:
        for found, reference in pool.map(ask, range(len(texts) - 3)):
            assert np.allclose(cosines(found, reference), 1.0, atol=1e-5, rtol=0)


# -- completions


def complete(client: Any, **options: Any) -> Any:
    return client.completions.create(
        **{"model": GPT, "prompt": "the film", "max_tokens": 8, "temperature": 0, **options}
    )


def test_a_greedy_completion_equals_the_library(client: Any, model_folders: dict[str, Path]) -> None:
    answer = complete(client)
    (choice,) = answer.choices
    result = regard.generate("the film", model=str(model_folders[GPT]), max_new_tokens=8, temperature=0.0)
    assert answer.object == "text_completion" and answer.model == GPT and choice.index == 0
    assert choice.text and choice.text == result.to_dict()["texts"][0]["text"]
    assert choice.finish_reason in ("length", "stop")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 0 < answer.usage.completion_tokens <= 8


def test_the_same_seed_gives_the_same_text(client: Any) -> None:
    first, second = (complete(client, temperature=1.0, seed=7, max_tokens=20).choices[0].text for _ in range(2))
    others = {complete(client, temperature=1.0, seed=seed, max_tokens=20).choices[0].text for seed in range(8)}
    assert first == second and len(others) > 1


def test_a_stop_text_ends_the_completion_before_it(client: Any) -> None:
    whole = complete(client, max_tokens=12).choices[0].text
    stop = whole[len(whole) // 2 : len(whole) // 2 + 2]
    choice = complete(client, max_tokens=12, stop=[stop, "never"]).choices[0]
    assert choice.text == whole[: whole.index(stop)] and choice.finish_reason == "stop"
    assert complete(client, max_tokens=12, stop=stop).choices[0].text == choice.text


def test_logprobs(client: Any) -> None:
    choice = complete(client, logprobs=3, max_tokens=5).choices[0]
    found = choice.logprobs
    assert len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs) == len(found.text_offset)
    assert all(value <= 0 for value in found.token_logprobs)
    for token, value, top in zip(found.tokens, found.token_logprobs, found.top_logprobs, strict=True):
        assert len(top) >= 3 and max(top.values()) == pytest.approx(value, abs=1e-4)  # greedy: the best was taken
        assert top[token] == pytest.approx(value, abs=1e-6)
    assert complete(client).choices[0].logprobs is None


def test_several_prompts_and_choices(client: Any) -> None:
    prompts = ["the film", "a day"]
    answer = complete(client, prompt=prompts)
    assert [choice.index for choice in answer.choices] == [0, 1]
    alone = [complete(client, prompt=prompt).choices[0].text for prompt in prompts]
    assert [choice.text for choice in answer.choices] == alone
    several = complete(client, n=3, temperature=1.0, seed=1)
    assert len(several.choices) == 3


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 3}, {"stop": ["e"]}])
def test_a_stream_is_the_completion_in_pieces(client: Any, options: dict[str, Any]) -> None:
    whole = complete(client, max_tokens=12, **options).choices[0]
    pieces = list(complete(client, max_tokens=12, stream=True, **options))
    assert "".join(piece.choices[0].text for piece in pieces if piece.choices) == whole.text
    reasons = [piece.choices[0].finish_reason for piece in pieces if piece.choices]
    assert reasons[-1] == whole.finish_reason and not any(reasons[:-1])
    assert len({piece.id for piece in pieces}) == 1


@pytest.mark.parametrize("options", [{}, {"n": 2, "temperature": 1.0, "seed": 3}, {"stop": ["e"]}, {"logprobs": 0}])
def test_a_stream_with_logprobs_is_the_completion_in_pieces(client: Any, options: dict[str, Any]) -> None:
    options = {"logprobs": 2, "max_tokens": 12, **options}
    whole = complete(client, **options).choices
    pieces = [piece.choices[0] for piece in complete(client, stream=True, **options)]
    for choice in whole:
        own = [piece for piece in pieces if piece.index == choice.index]
        assert "".join(piece.text for piece in own) == choice.text and len(own) > 1
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            joined = [item for piece in own if piece.logprobs for item in getattr(piece.logprobs, name)]
            assert joined == getattr(choice.logprobs, name)
        assert own[-1].finish_reason == choice.finish_reason and own[-1].logprobs is None


def test_a_stream_can_end_with_usage(client: Any) -> None:
    pieces = list(complete(client, stream=True, stream_options={"include_usage": True}))
    usage = complete(client).usage
    assert pieces[-1].choices == [] and pieces[-1].usage == usage


# -- models and errors


def test_models(client: Any, model_folders: dict[str, Path]) -> None:
    listed = client.models.list().data
    assert {model.id for model in listed} == set(model_folders)
    assert all(model.object == "model" for model in listed)
    assert client.models.retrieve(GPT).id == GPT
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")


def test_a_wrong_key(server: ServerProcess) -> None:
    wrong = openai.OpenAI(base_url=f"{server.address}/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError) as error:
        wrong.embeddings.create(model=EMBED, input="a film")
    assert KEY not in str(error.value)


def test_an_unknown_model(client: Any) -> None:
    for ask in (client.embeddings.create, client.completions.create):
        argument = {"input": "a"} if ask == client.embeddings.create else {"prompt": "a"}
        with pytest.raises(openai.NotFoundError, match="tiny-embd") as error:
            ask(model="tiny-embd", **argument)
        assert error.value.code == "model_not_found" and error.value.param == "model"


def test_a_model_for_something_else(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match=EMBED):
        complete(client, model=EMBED)


def test_limits_are_bad_requests(client: Any, reading_ids: ServerProcess, model_folders: dict[str, Path]) -> None:
    """400, as OpenAI's server answers, so that programs that catch BadRequestError catch these."""
    long = "the film " * 400
    with pytest.raises(openai.BadRequestError, match="--auto-truncate") as error:
        client.embeddings.create(model=EMBED, input=long)
    assert error.value.code == "context_length_exceeded" and "truncate to true" not in str(error.value)
    with pytest.raises(openai.BadRequestError, match="2,048"):
        client.embeddings.create(model=EMBED, input=["a"] * 2049)
    with pytest.raises(openai.BadRequestError, match="bytes"):
        client.embeddings.create(model=EMBED, input="a" * 4_100_000)
    with pytest.raises(openai.BadRequestError, match="context") as error:
        complete(client, prompt=long)
    assert error.value.code == "context_length_exceeded"
    with openai.OpenAI(base_url=f"{reading_ids.address}/v1", api_key="none", max_retries=0) as cutting:
        vector = cutting.embeddings.create(model=EMBED, input=long, encoding_format="float").data[0].embedding
    whole = regard.embed([long], model=str(model_folders[EMBED]), normalize=True).vectors[0]
    assert cosines(vector, whole) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.responses.create(model=GPT, input="a"),
        lambda client: client.moderations.create(input="a"),
        lambda client: client.files.list(),
        lambda client: client.files.retrieve("a"),
        lambda client: client.post("/fil", body={"text": "a"}, cast_to=object),
        lambda client: client.get("/", cast_to=object),
    ],
)
def test_an_unknown_path_has_the_form_of_openai(client: Any, ask: Any) -> None:
    with pytest.raises(openai.NotFoundError) as error:
        ask(client)
    assert error.value.type == "invalid_request_error" and error.value.body["message"]


def test_every_error_has_the_form_of_openai(client: Any, server: ServerProcess) -> None:
    """Wrong methods, hosts, types, keys and bytes that are not HTTP, before any handler of the path runs."""
    body = b'{"model": "tiny-embed", "input": "a"}'
    host = f"Host: 127.0.0.1:{server.port}".encode()
    requests = {
        405: server.request("/v1/embeddings", method="PUT"),
        400: server.request("/v1/embeddings", body).replace(host, b"Host: example.org"),
        401: server.request("/v1/embeddings", body).replace(KEY.encode(), b"wrong"),
    }
    requests_400 = [
        server.request("/v1/embeddings", body, content_type="text/plain"),
        server.request("/v1/embeddings", body[:-2]),
        server.request("/v1/embeddings", body, headers="Transfer-Encoding: chunked"),
        server.request("/v1/models", method="GET").replace(host, b"Host: example.org"),
    ]
    for status, request in [*requests.items(), *((400, request) for request in requests_400)]:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            connection.sendall(request)
            received = b"".join(iter(lambda connection=connection: connection.recv(1 << 16), b""))
        head, _, answer = received.partition(b"\r\n\r\n")
        assert int(head[9:12]) == status and b"application/json" in head, received
        assert set(json.loads(answer)["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input", []),
        ("input", ""),
        ("input", [1, -1]),
        ("input", {"a": 1}),
        ("dimensions", 0),
        ("dimensions", 10_000),
        ("encoding_format", "hex"),
    ],
)
def test_an_invalid_field_of_embeddings_is_named(client: Any, field: str, value: object) -> None:
    with pytest.raises(openai.BadRequestError, match=field) as error:
        client.embeddings.create(**{"model": EMBED, "input": "a film", field: value})
    assert (error.value.param or "").split(".")[0] == field


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_tokens", -1), ("temperature", -1), ("top_p", 2.0), ("n", 0), ("logprobs", -1), ("stop", 5), ("seed", "x")],
)
def test_an_invalid_field_of_completions_is_named(client: Any, field: str, value: object) -> None:
    with pytest.raises(openai.BadRequestError, match=field) as error:
        complete(client, **{field: value})
    assert (error.value.param or "").split(".")[0] == field


def test_a_request_id_comes_back(client: Any) -> None:
    headers = {"X-Request-Id": "test-4711"}
    answer = client.embeddings.with_raw_response.create(model=EMBED, input="a film", extra_headers=headers)
    assert answer.headers["x-request-id"] == "test-4711"
    assert len(client.models.with_raw_response.list().headers["x-request-id"]) >= 8
