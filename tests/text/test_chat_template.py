"""Chat templates: equal to transformers', saved with the tokenizer; hostile templates are refused in bounded time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Pipeline
from tokenizers import models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from regard.errors import InputError
from regard.text import Tokenizer, chat_template
from regard.text.chat_template import read_messages

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\nYou are a model.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' \
+ message['content'] + '<|im_end|>' + '\n'}}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
LLAMA3 = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{%- if not date_string is defined %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{{- "Today Date: " + date_string + "\n\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if message.role == 'skip' %}{%- continue %}{%- endif %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""
MISTRAL = """{{ bos_token }}{% for message in messages %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}\
{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}\
{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% endif %}{% endfor %}"""
JSON = "{% for message in messages %}{{ message | tojson(indent=2) }}\n    {% endfor %}{{ undefined_name }}"
TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "mistral": MISTRAL, "json": JSON}
MESSAGES = [
    {"role": "user", "content": " What is <b>naïve</b>? "},
    {"role": "assistant", "content": '日本語 "quoted"'},
    {"role": "user", "content": "And\nnow?"},
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def tokenizer(template: str | None) -> Tokenizer:
    pipeline = Pipeline(models.WordLevel({"<s>": 0, "</s>": 1, "a": 2}, unk_token="</s>"))
    pipeline.pre_tokenizer = pre_tokenizers.Whitespace()
    return Tokenizer(pipeline, special_tokens=SPECIAL, chat_template=template)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_equal_to_transformers(name: str, add_generation_prompt: bool, tmp_path: Path) -> None:
    ours = tokenizer(TEMPLATES[name])
    ours.save(tmp_path)
    again = Tokenizer.open(tmp_path)
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    options: dict[str, Any] = {"add_generation_prompt": add_generation_prompt}
    expected = theirs.apply_chat_template(MESSAGES, tokenize=False, **options)
    assert again.apply_chat_template(MESSAGES, **options) == expected
    assert again.chat_template == TEMPLATES[name]


def test_forms_of_the_template_in_a_folder(tmp_path: Path) -> None:
    tokenizer("string").save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings["chat_template"] = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "list"}]
    path.write_text(json.dumps(settings))
    assert Tokenizer.open(tmp_path).chat_template == "list"
    (tmp_path / "chat_template.jinja").write_text("file")
    assert Tokenizer.open(tmp_path).chat_template == "file"
    (tmp_path / "chat_template.jinja").unlink()
    for wrong in (3, [{"template": "x"}, "y"], "x" * (chat_template.MAX_TEMPLATE + 1)):
        path.write_text(json.dumps({**settings, "chat_template": wrong}))
        with pytest.raises(InputError, match="chat_template"):
            Tokenizer.open(tmp_path)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ cycler.__init__.__globals__.os.popen('id').read() }}", "SecurityError|UndefinedError"),
        ("{% include 'other' %}", "TypeError"),
        ("{% for", "TemplateSyntaxError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "seconds"),
        ("{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}", "memory"),
        ("{% for i in range(9999) %}{{ 'a' * 1000 }}{% endfor %}", "more than 4,000,000 characters"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
    ],
)
def test_hostile_templates_are_refused(template: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason == "seconds":
        monkeypatch.setattr(chat_template, "SECONDS", 1)
    with pytest.raises(InputError, match=reason):
        tokenizer(template).apply_chat_template(MESSAGES)


def test_messages_of_a_prompt() -> None:
    assert read_messages("[not json") == [{"role": "user", "content": "[not json"}]
    assert read_messages("[1, 2]") == [{"role": "user", "content": "[1, 2]"}]
    assert read_messages(json.dumps(MESSAGES)) == MESSAGES
    assert read_messages("hi", system="Be brief.")[0] == {"role": "system", "content": "Be brief."}
    with pytest.raises(InputError, match=r"message 2: .*'role' and 'content', found role, text"):
        read_messages('[{"role": "user", "content": "a"}, {"role": "user", "text": "b"}]')
    with pytest.raises(InputError, match="begin with one of the system"):
        read_messages('[{"role": "system", "content": "a"}]', system="b")
    with pytest.raises(InputError, match="no chat template"):
        tokenizer(None).apply_chat_template(MESSAGES)
