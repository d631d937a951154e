"""The official `openai` client chats with a model that has a template, and scores prompts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from benchmarks.clients import examples
from benchmarks.serve_process import ServerProcess, start_server
from tests.server.serve.conftest import CHAT, EMBED, GPT, KEY

openai = pytest.importorskip("openai")
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "the film?"}]


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def theirs(model_folders: dict[str, Path]) -> Any:
    """transformers' model and tokenizer of the chat model."""
    transformers = pytest.importorskip("transformers")
    folder = model_folders[CHAT]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def chat(client: Any, **options: Any) -> Any:
    arguments = {"model": CHAT, "messages": MESSAGES, "max_tokens": 12, "temperature": 0}
    return client.chat.completions.create(**{**arguments, **options})


def score(client: Any, prompt: Any, **options: Any) -> Any:
    arguments = {"model": GPT, "max_tokens": 0, "echo": True, "logprobs": 2, "temperature": 0}
    return client.completions.create(**{**arguments, "prompt": prompt, **options})


# -- chats


def test_a_chat_is_the_answer_of_transformers_and_of_the_library(
    client: Any, theirs: Any, model_folders: dict[str, Path]
) -> None:
    model, tokenizer = theirs
    inputs = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    ids = model.generate(**inputs, max_new_tokens=12, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    answer = chat(client)
    (choice,) = answer.choices
    assert answer.object == "chat.completion" and answer.model == CHAT and choice.message.role == "assistant"
    assert choice.message.content == tokenizer.decode(ids, skip_special_tokens=True) != ""
    assert answer.usage.prompt_tokens == inputs["input_ids"].shape[1]  # the begin token is not there twice
    assert answer.usage.completion_tokens == len(ids) == answer.usage.total_tokens - answer.usage.prompt_tokens
    found = regard.generate(
        MESSAGES, model=str(model_folders[CHAT]), chat=True, temperature=0.0, max_new_tokens=12
    ).to_dict()
    assert found["texts"][0]["text"] == choice.message.content


def test_forms_of_a_message(client: Any) -> None:
    expected = chat(client, messages=[{"role": "system", "content": "a"}, {"role": "user", "content": "the\nfilm"}])
    parts = [{"type": "text", "text": "the"}, {"type": "text", "text": "film"}]
    other = chat(client, messages=[{"role": "developer", "content": "a"}, {"role": "user", "content": parts}])
    assert other.choices == expected.choices and other.usage == expected.usage


def test_a_message_longer_than_the_context_is_refused(client: Any) -> None:
    long = [{"role": "user", "content": "x" * 400_000}]
    with pytest.raises(openai.BadRequestError, match="context"):
        chat(client, messages=long)


@pytest.mark.parametrize("options", [{}, {"n": 2, "temperature": 1.0, "seed": 3}, {"stop": ["e"]}, {"max_tokens": 40}])
def test_a_stream_is_the_answer_in_pieces(client: Any, options: dict[str, Any]) -> None:
    whole = chat(client, logprobs=True, top_logprobs=2, **options)
    chunks = list(
        chat(client, logprobs=True, top_logprobs=2, stream=True, stream_options={"include_usage": True}, **options)
    )
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"} and len({one.id for one in chunks}) == 1
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert all(chunk.usage is None and "usage" in chunk.model_fields_set for chunk in chunks[:-1])
    for choice in whole.choices:
        own = [chunk.choices[0] for chunk in chunks[:-1] if chunk.choices[0].index == choice.index]
        assert own[0].delta.role == "assistant" and not any(piece.delta.role for piece in own[1:])
        assert "".join(piece.delta.content or "" for piece in own) == choice.message.content
        assert [piece.finish_reason for piece in own if piece.finish_reason] == [choice.finish_reason]
        joined = [item for piece in own if piece.logprobs for item in piece.logprobs.content]
        assert [item.token for item in joined] == [item.token for item in choice.logprobs.content]
        # The second answer reuses the keys and values of the first, which rounds differently.
        values = [[one.logprob for one in (item, *item.top_logprobs)] for item in joined]
        expected = [[one.logprob for one in (item, *item.top_logprobs)] for item in choice.logprobs.content]
        assert values == [pytest.approx(row, abs=1e-4) for row in expected]


def test_logprobs_are_those_of_transformers(client: Any, theirs: Any) -> None:
    model, tokenizer = theirs
    choice = chat(client, logprobs=True, top_logprobs=3, max_tokens=5).choices[0]
    entries = choice.logprobs.content
    ids = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert b"".join(bytes(entry.bytes) for entry in entries).decode(errors="replace") == choice.message.content
    for entry in entries:
        with torch.inference_mode():
            expected = model(torch.tensor([ids])).logits[0, -1].double().log_softmax(-1).topk(3)
        assert entry.logprob == pytest.approx(float(expected.values[0]), abs=1e-4)
        assert [one.logprob for one in entry.top_logprobs] == pytest.approx(expected.values.tolist(), abs=1e-4)
        ids = [*ids, int(expected.indices[0])]
    assert chat(client, logprobs=True).choices[0].logprobs.content[0].top_logprobs == []
    assert chat(client).choices[0].logprobs is None


def test_an_end_token_of_the_chat_ends_it(client: Any) -> None:
    """The random model ends some of these texts; an end token is neither text nor a log-probability."""
    answer = chat(client, n=16, temperature=1.0, seed=5, max_tokens=300, logprobs=True)
    reasons = [choice.finish_reason for choice in answer.choices]
    assert {"stop"} <= set(reasons) and "<|im_end|>" not in "".join(c.message.content for c in answer.choices)
    for choice in answer.choices:
        assert "<|im_end|>" not in [entry.token for entry in choice.logprobs.content]


def test_without_max_tokens_an_answer_may_take_the_rest_of_the_context(client: Any) -> None:
    answer = chat(client, max_tokens=None, n=4, temperature=1.0, seed=1)
    context = 512
    for choice in answer.choices:
        assert choice.finish_reason in ("stop", "length")
    longest = 4 * (context + 1 - answer.usage.prompt_tokens)
    assert 0 < answer.usage.completion_tokens <= longest
    fits = context + 1 - answer.usage.prompt_tokens
    assert chat(client, max_tokens=fits).usage.completion_tokens <= fits
    assert chat(client, max_completion_tokens=3, max_tokens=None).usage.completion_tokens == 3
    with pytest.raises(openai.BadRequestError, match="context") as error:
        chat(client, max_tokens=fits + 1)
    assert error.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"presence_penalty": -1}, "presence_penalty"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"extra_body": {"top_k": 5}}, "top_k"),
        ({"extra_body": {"add_generation_prompt": False}}, "add_generation_prompt"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"store": True}, "store"),
        ({"max_tokens": 2, "max_completion_tokens": 3}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stop": [""]}, "stop"),
        ({"n": 17}, "n"),
        ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "stream_options"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": "a", "name": "me"}]}, "messages"),
        ({"messages": [{"role": "tool", "content": "a", "tool_call_id": "1"}]}, "messages"),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]}, "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a"}}]}]},
            "messages",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}, "messages"),
        ({"model": GPT}, "model"),
        ({"model": EMBED}, "model"),
    ],
)
def test_what_a_chat_does_not_do_is_refused_by_name(client: Any, options: dict[str, Any], named: str) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as error:
            chat(client, **{"stream": stream, **options})
        assert ((error.value.param or "").split(".")[0] == named and named in str(error.value)) or named == "model"


def test_a_model_without_a_template_is_refused_with_what_to_do(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="chat template") as error:
        chat(client, model=GPT)
    assert "/v1/completions" in str(error.value) and CHAT in str(error.value)


@pytest.mark.parametrize("field", ["user", "metadata", "service_tier", "safety_identifier"])
def test_fields_that_change_nothing_are_accepted(client: Any, field: str) -> None:
    value = {"a": "b"} if field == "metadata" else "auto"
    assert chat(client, **{field: value}, frequency_penalty=0, store=False).choices == chat(client).choices


@pytest.mark.long
def test_the_studio_answers_the_same_chat(client: Any, model_folders: dict[str, Path], page_built: None) -> None:
    folder = str(model_folders[CHAT])
    with start_server([folder], door="studio", token=KEY) as studio:
        body = {"model": folder, "messages": MESSAGES, "max_tokens": 12, "temperature": 0}
        found = studio.ask_json("/v1/chat/completions", body)
        status, _, refusal = studio.ask("/v1/chat/completions", {**body, "tools": [{"type": "function"}]})
    assert found["choices"][0]["message"]["content"] == chat(client).choices[0].message.content
    assert status == 400 and json.loads(refusal)["error"]["param"] == "tools"


# -- log-probabilities of prompts


@pytest.mark.parametrize("prompt", ["the film was good", "a 😀 day €", "a", "the film " * 40])
def test_the_logprobs_of_a_prompt_are_those_of_transformers(
    client: Any, theirs: Any, model_folders: dict[str, Path], prompt: str
) -> None:
    for name in (GPT, CHAT):
        model, tokenizer = regard.load(model_folders[name])
        read = tokenizer.encode(prompt).ids
        found = score(client, prompt, model=name).choices[0]
        lists = found.logprobs
        ids = tokenizer.encode(prompt, add_special_tokens=False).ids
        assert found.text == prompt and found.finish_reason == "length"
        assert len(lists.tokens) == len(lists.token_logprobs) == len(lists.top_logprobs) == len(ids)
        with torch.inference_mode():
            row = torch.tensor([read])
            logits = theirs[0](row).logits[0] if name == CHAT else model.logits(model(row))[0]
        values = logits.double().log_softmax(-1)
        expected = [None] * (len(read) == len(ids))  # a begin token before the text: its first token has one, too
        expected += [float(values[i, token]) for i, token in enumerate(read[1:])]
        assert [one is None for one in lists.token_logprobs] == [one is None for one in expected]
        assert lists.token_logprobs[1:] == pytest.approx(expected[1:], abs=1e-4)
        for token, value, top in zip(lists.tokens, lists.token_logprobs, lists.top_logprobs, strict=True):
            assert (top is None) == (value is None)
            assert top is None or (top[token] >= value and 2 <= len(top) <= 3)
        assert lists.text_offset == sorted(lists.text_offset) and lists.text_offset[0] == 0
        for token, offset in zip(lists.tokens, lists.text_offset, strict=True):
            assert "\\x" in token or prompt[offset:].startswith(token)


def test_a_prompt_is_scored_as_by_the_library(client: Any, model_folders: dict[str, Path], tmp_path: Path) -> None:
    texts = ["the film was good", "a bad day, they said"]
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(texts) + "\n")
    lines = regard.score(path, model=str(model_folders[CHAT])).to_dict()["lines"]
    answer = score(client, texts, model=CHAT)
    for line, choice in zip(lines, answer.choices, strict=True):
        assert sum(choice.logprobs.token_logprobs) == pytest.approx(line["log_probability"], abs=1e-4)
    assert answer.usage.completion_tokens == 0


def test_multiple_choice_as_evaluation_programs_score_it_is_the_benchmark(
    client: Any, model_folders: dict[str, Path], tmp_path: Path
) -> None:
    """lm-evaluation-harness reads the log-probabilities behind the context; `benchmarks.clients` runs the program."""
    questions = examples()[:12]
    path = tmp_path / "endings.jsonl"
    path.write_text("".join(json.dumps(question) + "\n" for question in questions))
    expected = regard.benchmark("hellaswag", data=path, model=str(model_folders[CHAT]))
    right = 0
    for question in questions:
        texts = [f"{question['ctx']} {ending}" for ending in question["endings"]]
        sums = []
        for choice in score(client, texts, model=CHAT, logprobs=1, max_tokens=1).choices:
            lists = choice.logprobs
            pairs = zip(lists.text_offset[:-1], lists.token_logprobs[:-1], strict=True)
            sums.append(sum(value for offset, value in pairs if offset >= len(question["ctx"])))
        right += max(range(4), key=sums.__getitem__) == question["label"]
    assert 100 * right / len(questions) == pytest.approx(expected.accuracy) and 0 < right < len(questions)


def test_echo_with_a_completion(client: Any) -> None:
    prompt = "the film"
    plain = score(client, prompt, echo=False, max_tokens=5).choices[0]
    whole = score(client, prompt, max_tokens=5).choices[0]
    alone = score(client, prompt).choices[0].logprobs
    assert whole.text == prompt + plain.text
    count = len(alone.tokens)
    assert whole.logprobs.tokens == alone.tokens + plain.logprobs.tokens
    assert whole.logprobs.token_logprobs[count:] == pytest.approx(plain.logprobs.token_logprobs, abs=1e-4)
    assert whole.logprobs.text_offset[count:] == [len(prompt) + offset for offset in plain.logprobs.text_offset]
    pieces = [chunk.choices[0] for chunk in score(client, prompt, max_tokens=5, stream=True)]
    assert "".join(piece.text for piece in pieces) == whole.text
    joined = [token for piece in pieces if piece.logprobs for token in piece.logprobs.tokens]
    assert joined == whole.logprobs.tokens
    assert score(client, "", logprobs=1).choices[0].logprobs.tokens == []


def test_the_stored_requests_of_other_clients_are_answered(server: ServerProcess) -> None:
    """What these clients sent when they were tried (docs/clients.md), with the names of the models here."""
    stored = json.loads((Path(__file__).parent / "client_requests.json").read_text())
    assert {"langchain-openai", "litellm", "llama-index", "lm-evaluation-harness"} <= {one["client"] for one in stored}
    for request in stored:
        name = CHAT if "chat" in request["path"] else GPT
        status, _, body = server.ask(request["path"], {**request["body"], "model": name})
        assert status == request["status"], (request, body)
