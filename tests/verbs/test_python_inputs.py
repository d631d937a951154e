"""What Python callers pass as texts: one normalization for all verbs, estimators and indexes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest

import regard
from regard.errors import InputError, InputWarning
from regard.verbs import VERBS, find
from regard.verbs.base import Request
from tests.inference.folders import tiny_gpt

TEXTS = ["the film was good", "a bad day"]
KINDS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "generator": lambda texts: (text for text in texts),
    "Series": lambda texts: pd.Series(texts, index=range(7, 7 + len(texts))),
    "string Series": lambda texts: pd.Series(texts, dtype="string"),
    "categories": lambda texts: pd.Series(texts, dtype="category"),
    "Index": pd.Index,
    "array": lambda texts: np.array(texts, dtype=object),
    "column": lambda texts: np.array(texts, dtype=object).reshape(-1, 1),
    "Arrow column": lambda texts: pyarrow.chunked_array([texts]),
    "dict view": lambda texts: dict(enumerate(texts)).values(),
}
# The argument of each verb that takes several texts.
SEVERAL = {
    "embed": "source",
    "score": "source",
    "perplexity": "source",
    "tokenize": "source",
    "translate": "source",
    "search": "source",
    "duplicates": "source",
    "cluster": "source",
    "activations": "source",
    "predict": "source",
    "heads": "text",
}
# Those that take one text, and every other text beside it.
SINGLE = {
    "fill": ["text"],
    "next_token": ["text"],
    "next": ["first", "second"],
    "look": ["text", "text_b"],
    "lens": ["text"],
    "decode": ["text"],
    "figure": ["text"],
    "ablate": ["text", "text_b"],
    "attribute": ["text", "text_b"],
    "compare": ["text", "text_b"],
    "faithfulness": ["text", "text_b"],
    "logit_attribution": ["text"],
    "long_attention": ["text"],
    "patch": ["clean", "corrupted"],
    "tokenize": ["pair"],
    "predict": ["second"],
}
OTHERS = {"model": "regard-bert", "word": "film", "query": ["film"]}


def polars_series(texts: list[Any]) -> Any:
    return pytest.importorskip("polars").Series(texts)


def parse(name: str, **arguments: Any) -> Request:
    fields = find(name).request.model_fields
    needed = {**OTHERS, **({"layer": 1, "head": 1} if name == "activations" else {})}
    others = {key: value for key, value in needed.items() if key in fields and key not in arguments}
    return find(name).parse({**others, **arguments}, python=True)


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("kind", [*KINDS, "polars"])
def test_all_kinds_of_texts(name: str, kind: str) -> None:
    if (name, kind) == ("predict", "tuple"):
        pytest.skip("two texts in a tuple are one pair")
    make = KINDS.get(kind, polars_series)
    assert getattr(parse(name, **{SEVERAL[name]: make(TEXTS)}), SEVERAL[name]) == TEXTS


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
def test_missing_texts(name: str, missing: object) -> None:
    texts = pd.Series(["the film", missing, "a day"], dtype=object)
    assert getattr(parse(name, **{SEVERAL[name]: texts}), SEVERAL[name]) == ["the film", None, "a day"]


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("value", [[1, 2], [b"bytes"], [["a"], "b"], 5, {"a": "b"}, {"a", "b"}, b"text", np.zeros(3)])
def test_what_is_no_text_is_named(name: str, value: object) -> None:
    if name == "predict" and isinstance(value, list) and isinstance(value[0], list):
        pytest.skip("lists are pairs, which the model refuses")
    with pytest.raises(InputError) as error:
        parse(name, **{SEVERAL[name]: value})
    message = str(error.value)
    assert message.startswith(SEVERAL[name]) and "expected" in message and "\n" not in message
    assert "pydantic" not in message and "valid" not in message and "Input" not in message


@pytest.mark.parametrize("name", sorted(set(SEVERAL) - {"search", "duplicates", "cluster"}))
def test_a_string_is_one_text_and_no_file(name: str, tmp_path: Path) -> None:
    field = SEVERAL[name]
    assert getattr(parse(name, **{field: "film"}), field) in (["film"], "film")
    path = tmp_path / "texts.txt"
    path.write_text("a\n", encoding="utf-8")
    for value in (str(path), "missing.csv", "s3://bucket/texts.txt", "-"):
        with pytest.raises(InputError, match=re.escape(f"pathlib.Path({value!r})")):
            parse(name, **{field: value})
        assert getattr(parse(name, **{field: [value]}), field) == [value]
    assert str(getattr(parse(name, **{field: path}), field)) == str(path)


def test_the_command_line_and_clients_keep_their_meaning(tmp_path: Path) -> None:
    assert find("embed").parse({"source": "texts.txt"}).source == Path("texts.txt")  # type: ignore[attr-defined]
    assert find("embed").parse({"source": "a\nb"}, files=False).source == ["a", "b"]  # type: ignore[attr-defined]
    assert find("tokenize").parse({"source": "texts.txt"}).source == "texts.txt"  # type: ignore[attr-defined]


def test_a_word_is_translated_and_not_opened() -> None:
    assert parse("translate", source="Hund").source == ["Hund"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["search", "duplicates", "cluster"])
def test_the_folder_of_an_index_may_be_a_string(name: str, tmp_path: Path) -> None:
    assert parse(name, source=str(tmp_path)).source == tmp_path  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"pathlib\.Path\('reviews\.csv'\)"):
        parse(name, source="reviews.csv")
    with pytest.raises(InputError, match="expected a list of texts"):
        parse(name, source="one text")


@pytest.mark.parametrize(("name", "field"), [(name, field) for name, fields in SINGLE.items() for field in fields])
@pytest.mark.parametrize("kind", ["list", "tuple", "Series"])
def test_a_list_for_one_text_is_an_error_that_says_what_to_do(name: str, field: str, kind: str) -> None:
    given = dict.fromkeys(SINGLE[name], "a text") | ({"source": "a text"} if name in SEVERAL else {})
    with pytest.raises(InputError) as error:
        parse(name, **{**given, field: KINDS[kind](TEXTS)})
    message = str(error.value)
    assert re.match(rf"{field} is .*; expected one text, got \w+ with 2 items; call .* for each", message)


def test_every_text_argument_is_tested() -> None:
    """A new verb that takes texts belongs to one of the tables above."""
    names = {"text", "text_b", "prompt", "first", "second", "clean", "corrupted", "pair"}
    for name in VERBS:
        for field, info in find(name).request.model_fields.items():
            before_texts = field == "prompt" and name in ("embed", "index", "search")  # itself no text to answer
            if field in names and not before_texts and info.annotation in (str, str | None):
                assert field in SINGLE.get(name, ()), (name, field)


def test_a_frame_is_a_table() -> None:
    frame = pd.DataFrame({"text": TEXTS})
    for name, field in SEVERAL.items():
        assert getattr(parse(name, **{field: frame}), field).frame is frame


def test_lists_of_words_and_texts() -> None:
    assert parse("embed", source=TEXTS, columns="text").columns == ["text"]  # type: ignore[attr-defined]
    assert parse("fill", text="a _", targets="film").targets == ["film"]  # type: ignore[attr-defined]
    assert parse("fill", text="a _", targets=("film", "day")).targets == ["film", "day"]  # type: ignore[attr-defined]
    for make in KINDS.values():
        assert parse("senses", texts=make(TEXTS)).texts == TEXTS  # type: ignore[attr-defined]
        assert parse("search", source=TEXTS, query=make(TEXTS)).query == TEXTS  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"texts is .*; expected texts"):
        parse("senses", texts=["a film", None])


def test_other_values_are_explained_in_plain_words() -> None:
    for arguments in ({"top": "x"}, {"top": 0}, {"top": 1.5}, {"targets": [1]}, {"targets": 5}, {"text": 5}):
        with pytest.raises(InputError) as error:
            parse("fill", **{"text": "a _", **arguments})
        assert not re.search("pydantic|valid|Input should|Value error", str(error.value)), str(error.value)
    with pytest.raises(InputError, match=r"^top is 'x'; expected a whole number or 'all'$"):
        parse("compare", text="a _", top="x")


# Prompts


def test_a_list_of_prompts(tmp_path: Path) -> None:
    gpt = str(tiny_gpt(tmp_path))
    options: dict[str, Any] = {"model": gpt, "max_new_tokens": 4, "seed": 3, "num_return_sequences": 2}
    both = regard.generate(["the film", "a bad day"], **options)
    alone = [regard.generate(prompt, **options) for prompt in ("the film", "a bad day")]
    assert [one.to_dict() for one in both.results] == [one.to_dict() for one in alone]
    assert [one.text for one in both.texts] == [text.text for one in alone for text in one.texts]
    assert alone[0].results == [alone[0]]
    headers, rows = both.to_table()
    assert headers == ["prompt", "text", "reason"]
    assert [row[0] for row in rows] == ["the film", "the film", "a bad day", "a bad day"]
    assert json.loads(both.to_json())["results"][1]["prompt"] == "a bad day"
    assert "a bad day" in both.to_text()
    same = regard.generate(pd.Series(["the film", "a bad day"]), **options)
    assert same.to_dict() == both.to_dict()


def test_one_prompt_in_a_list_is_that_prompt() -> None:
    assert parse("generate", prompt=["the film"]).prompt == "the film"  # type: ignore[attr-defined]
    assert parse("generate", prompt='["a", "b"]').prompt == '["a", "b"]'  # type: ignore[attr-defined]


def test_messages_are_a_chat() -> None:
    messages = [{"role": "user", "content": "Hello"}]
    request = parse("generate", prompt=messages, chat=True)
    assert json.loads(request.prompt) == messages  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="messages are for a chat; set chat"):
        parse("generate", prompt=messages)
    assert parse("generate", prompt=["a", "b"], chat=True).prompt == ["a", "b"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("prompt", [[], ["a", None], ["a", 5], [[{"role": "user"}]], {"a": 1}, 7, Path("prompt.txt")])
def test_what_is_no_prompt_is_refused(prompt: object) -> None:
    with pytest.raises(InputError, match=r"prompt is .*; (expected|the text of row 1 is missing)"):
        parse("generate", prompt=prompt)


@pytest.mark.parametrize("options", [{"candidates": True}, {"trace": "trace.json"}])
def test_what_shows_one_text_refuses_several_prompts(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="one prompt"):
        parse("generate", prompt=["a", "b"], **options)


def test_a_server_takes_few_prompts() -> None:
    with pytest.raises(InputError, match="at most 16 prompts"):
        find("generate").parse({"prompt": ["a"] * 17}, files=False)


# The others


def test_labeled_texts() -> None:
    labels = pd.Series([1, 0])
    rows = parse("features", data=zip(TEXTS, labels, strict=True)).data  # type: ignore[attr-defined]
    assert rows == [("the film was good", "1"), ("a bad day", "0")]
    assert parse("map", texts=pd.Series([*TEXTS, np.nan])).texts == [(text, None) for text in (*TEXTS, None)]  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"list\(zip\(texts, labels\)\)"):
        parse("map", texts=pd.DataFrame({"text": TEXTS}))


def test_a_series_with_missing_texts(tiny_bert_folder: Path) -> None:
    texts = pd.Series(["the film was good", np.nan, "a bad day"])
    result = regard.embed(texts, model=str(tiny_bert_folder))
    assert result.missing == 1 and not result.vectors[1].any()
    index = regard.index(texts, model=str(tiny_bert_folder))
    assert len(index) == 2
    with pytest.raises(InputError, match=r"pathlib\.Path\('reviews\.csv'\)"):
        regard.index("reviews.csv", model=str(tiny_bert_folder))
    with pytest.raises(InputError, match="expected a list of texts"):
        regard.index("a text", model=str(tiny_bert_folder))
    with pytest.raises(InputError, match="row 1 is missing"):
        regard.Embedder(str(tiny_bert_folder)).transform(texts)


def test_rows_without_a_text_are_left_out_of_a_perplexity(tiny_bert_folder: Path) -> None:
    with pytest.warns(InputWarning, match="2 rows without a text were skipped"):
        found = regard.perplexity([*TEXTS, None, np.nan], model=str(tiny_bert_folder))
    assert found.perplexity == regard.perplexity(TEXTS, model=str(tiny_bert_folder)).perplexity


def test_a_missing_text_is_said_beside_the_translations() -> None:
    result = regard.translate("regard-de-en", ["Guten Tag.", None], num_beams=1)
    assert [text.translations[0].text for text in result.texts][1] == "" and "1 row without a text" in result.notes[0]
