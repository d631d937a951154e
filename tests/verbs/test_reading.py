"""Texts that a model cannot read, and texts that were cut: said in every door, once per job."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

import regard
from regard.checkpoints.reading import reads_english
from regard.cli.app import run
from regard.errors import InputWarning
from regard.events import Event, Note
from regard.training.recipes.finetuning.run import fine_tune

CHINESE = "我喜欢这本书。"
RUSSIAN = "Мне нравится эта книга."
GERMAN = "Das Wetter ist heute schön und wir gehen in den Garten."
ENGLISH = "The weather is nice today, and we are going to the garden."


def notes_of(verb: str, *arguments: object, **options: object) -> list[str]:
    events: list[Event] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        getattr(regard, verb)(*arguments, on_event=events.append, **options)
    return [event.message for event in events if isinstance(event, Note) and event.message.startswith("warning: ")]


@pytest.mark.parametrize("text", [CHINESE, RUSSIAN, GERMAN, "😀😀"])
def test_texts_that_an_english_model_cannot_read(text: str) -> None:
    [note] = notes_of("embed", [text])
    assert "regard-embed" in note and "1 text" in note and "multilingual" in note
    [note] = notes_of("fill", f"{text} [MASK].")
    assert "regard-bert" in note and "bert-base-multilingual-cased" in note
    if text != "😀😀":  # of no language, and known to byte-level tokenizers
        [note] = notes_of("generate", text, max_new_tokens=1)
        assert "regard-gpt" in note and "English" in note


def test_english_texts_are_read_without_a_note() -> None:
    assert notes_of("embed", [ENGLISH, f"{ENGLISH} 😀", "", "42", "iPhone 13 Pro Max", "SELECT * FROM t"]) == []
    assert notes_of("fill", "The capital of France is [MASK].") == []
    assert notes_of("generate", ENGLISH, max_new_tokens=1) == []
    mostly = [f"{ENGLISH} {number}" for number in range(99)]
    assert notes_of("embed", [*mostly, GERMAN]) == [], "one in a hundred may be a name or a mistake"
    [note] = notes_of("embed", [*mostly, CHINESE * 3])
    assert "1 text" in note, "unknown tokens are counted exactly"
    [note] = notes_of("embed", [*mostly, RUSSIAN, *(f"{one} again" for one in mostly * 3), f"{RUSSIAN} x"])
    assert "not the language of 2 texts" in note, "another script is counted exactly, whichever texts are tested"
    addresses = ["https://www.example.com/a/b?c=1", "dup.csv", "RT @KudaBrazyy http://t.co/LuUBGL9Y5u", "5 Ω"]
    assert notes_of("embed", addresses) == []


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("look", (RUSSIAN,)),
        ("tokenize", (RUSSIAN,)),
        ("score", ([RUSSIAN],)),
        ("perplexity", ([RUSSIAN],)),
        ("predict", ("regard-spam", [RUSSIAN])),
        ("lens", (RUSSIAN,)),
        ("duplicates", ([RUSSIAN, ENGLISH],)),
    ],
)
def test_every_verb_says_it_once(verb: str, arguments: tuple[object, ...]) -> None:
    assert len(notes_of(verb, *arguments)) == 1


def test_python_code_is_warned() -> None:
    with pytest.warns(InputWarning, match="regard-embed reads English") as found:
        regard.embed([RUSSIAN, RUSSIAN])
    assert len(found) == 1 and found[0].filename == __file__ and issubclass(InputWarning, UserWarning)
    with pytest.warns(InputWarning, match="1 text had more tokens .* cut") as found:
        regard.embed(["a text " * 400, ENGLISH])
    assert len(found) == 1
    with pytest.warns(InputWarning, match="German"):
        regard.translate("regard-de-en", "Where is the nearest train station?", num_beams=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regard.embed([ENGLISH])
        regard.embed(["a text " * 400], long="windows")


def test_classes_for_python_code_warn_once(tiny_bert_folder: Path) -> None:
    embedder = regard.Embedder()
    with pytest.warns(InputWarning, match="regard-embed reads English") as found:
        embedder.fit_transform([RUSSIAN, ENGLISH])
        embedder.transform([CHINESE])
    assert len(found) == 1 and found[0].filename == __file__
    with pytest.warns(InputWarning, match="cut"):
        regard.Embedder(max_length=8).transform([ENGLISH])
    with pytest.warns(InputWarning, match="regard-embed reads English") as found:
        index = regard.index([RUSSIAN, ENGLISH])
    assert len(found) == 1 and found[0].filename == __file__
    with pytest.warns(InputWarning, match="regard-embed reads English") as found:
        regard.index([ENGLISH]).search(RUSSIAN)
    assert len(found) == 1 and found[0].filename == __file__
    with pytest.warns(InputWarning, match="reads English"):
        regard.load("regard-spam").predict([RUSSIAN, CHINESE])
    classifier = regard.TextClassifier(str(tiny_bert_folder), epochs=1, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index.search(ENGLISH)
        classifier.fit(["a good day", "a bad day"], [1, 0]).predict(["the film was good"])
    with pytest.warns(InputWarning, match="does not know"):
        classifier.predict([CHINESE])


def test_the_result_the_page_and_the_terminal_have_the_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(InputWarning):
        result = regard.look(RUSSIAN)
    [warning] = json.loads(result.to_json())["warnings"]
    assert "reads English" in warning and warning in result.page_data()["notes"]
    assert "warnings" not in json.loads(regard.look(ENGLISH).to_json())
    (tmp_path / "texts.txt").write_text(f"{RUSSIAN}\n", encoding="utf-8")
    assert run(["embed", str(tmp_path / "texts.txt"), "--output", str(tmp_path / "v.npy")]) == 0
    assert capsys.readouterr().err.count("reads English") == 1


def test_a_published_card_that_states_english(tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    for text, expected in (
        ("---\nlanguage: en\n---\n", True),
        ("---\nlicense: mit\nlanguage:\n- en\ntags:\n- a\n---\n", True),
        ("---\nlanguage:\n- en\n- de\n---\n", False),
        ("---\nlanguage: de\n---\n", False),
        ("# A model\nlanguage: en\n", False),
    ):
        card.write_text(text)
        assert reads_english(tmp_path) is expected, text


def test_training_data_that_a_model_cannot_read(tmp_path: Path) -> None:
    texts = [f"{RUSSIAN} {number}" for number in range(20)]
    rows = "".join(f"{text}\t{number % 2}\n" for number, text in enumerate(texts))
    (tmp_path / "train.tsv").write_text(f"text\tlabel\n{rows}", encoding="utf-8")
    events = fine_tune("classify", tmp_path / "train.tsv", output=tmp_path / "out")
    for event in events:
        if isinstance(event, Note) and "reads English" in event.message:
            break
    else:
        pytest.fail("the training data are Russian, and nothing says that regard-bert reads English")
    events.close()


@pytest.mark.long
@pytest.mark.parametrize("options", [{"baseline": False}, {"frozen": True}])
def test_a_fine_tuned_model_keeps_the_language_of_its_start(options: dict[str, bool], tmp_path: Path) -> None:
    data = [(f"{'a good' if number % 2 else 'a bad'} film {number}", str(number % 2)) for number in range(24)]
    first, second = tmp_path / "first", tmp_path / "second"
    regard.fit(data, output=first, epochs=1, max_length=16, device="cpu", **options)
    regard.load(first).save(second)
    for folder in (first, second):
        [note] = notes_of("predict", str(folder), [RUSSIAN])
        assert "reads English" in note and "multilingual" in note
        assert notes_of("predict", str(folder), [ENGLISH]) == []


def test_a_model_that_states_no_language_passes_none_on(tiny_bert_folder: Path, tmp_path: Path) -> None:
    data = [(f"a film {number}", str(number % 2)) for number in range(24)]
    model = regard.fit(
        data, model=tiny_bert_folder, output=tmp_path / "out", epochs=1, baseline=False, device="cpu", max_length=16
    )
    assert model.language == "" and not reads_english(tmp_path / "out")
