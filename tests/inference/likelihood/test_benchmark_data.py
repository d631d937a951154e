"""Benchmark files: candidates of small files, errors with line numbers, and counts of the public files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.errors import InputError
from regard.inference.benchmark import Ending, read_items

SIX = "Roof: A man sits. he\n1\nsleeps.\nworks.\nruns.\neats.\n"
PIQA = {"goal": "Open a tin. ", "sol1": "Use a key ", "sol2": "Use a song"}
WINOGRANDE = {
    "sentence": "Ian gave Dennis soup because _ was hungry.",
    "option1": "Ian",
    "option2": "Dennis",
    "answer": "2",
}


def lines(*records: dict[str, object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def to(name: str, content: str) -> Path:
        (tmp_path / name).write_text(content, encoding="utf-8")
        return tmp_path / name

    return to


def test_lambada_predicts_the_last_word(write: Callable[[str, str], Path]) -> None:
    expected = [(Ending("she said ,  ''", " rowan"),), (Ending("a", " b"),)]
    plain = read_items("lambada", write("l.txt", "she said ,  '' rowan \na b\n\n"))
    assert [item.candidates for item in plain] == expected
    assert [item.label for item in plain] == [0, 0]
    assert plain[1].where.endswith("l.txt line 2")
    records = read_items("lambada", write("l.jsonl", lines({"text": "she said ,  '' rowan"}, {"text": "a b"})))
    assert [item.candidates for item in records] == expected


def test_hellaswag_is_the_same_in_both_forms(write: Callable[[str, str], Path]) -> None:
    (plain,) = read_items("hellaswag", write("h.txt", SIX))
    assert plain.candidates[1] == Ending("Roof: A man sits. he", " works.")
    assert (len(plain.candidates), plain.label) == (4, 1)
    record = {
        "activity_label": "Roof",
        "ctx": "A man sits [title] he",
        "endings": ["sleeps.", "[step] works.", "runs.", "eats."],
        "label": "1",
    }
    (found,) = read_items("hellaswag", write("h.jsonl", lines(record)))
    assert (found.candidates, found.label) == (plain.candidates, plain.label)
    (bare,) = read_items("hellaswag", write("b.jsonl", lines({"ctx": "A", "endings": ["b", "c"], "label": 0})))
    assert bare.candidates == (Ending("A", " b"), Ending("A", " c"))


def test_piqa_labels_come_from_a_separate_file_or_the_same_file(write: Callable[[str, str], Path]) -> None:
    data, labels = write("p.jsonl", lines(PIQA, PIQA)), write("labels.lst", "1\n0\n\n")
    first, second = read_items("piqa", data, labels=labels)
    context = "Question: Open a tin.\nAnswer:"
    assert first.candidates == (Ending(context, " Use a key"), Ending(context, " Use a song"))
    assert (first.label, second.label) == (1, 0)
    (only,) = read_items("piqa", data, labels=labels, limit=1)
    assert only == first
    (own,) = read_items("piqa", write("own.jsonl", lines({**PIQA, "label": 1})))
    assert own.label == 1


def test_winogrande_scores_what_follows_the_blank(write: Callable[[str, str], Path]) -> None:
    (item,) = read_items("winogrande", write("w.jsonl", lines(WINOGRANDE)))
    before = "Ian gave Dennis soup because "
    assert item.candidates == (
        Ending(before + "Ian", " was hungry."),
        Ending(before + "Dennis", " was hungry."),
    )
    assert item.label == 1
    data = write("u.jsonl", lines({**WINOGRANDE, "answer": ""}))
    (item,) = read_items("winogrande", data, labels=write("w.lst", "1\n"))
    assert item.label == 0
    (item,) = read_items("winogrande", write("s.jsonl", lines({**WINOGRANDE, "sentence": "It was _'s day."})))
    assert item.candidates[0] == Ending("It was Ian", "'s day.")


def test_bytes_of_an_ending() -> None:
    assert Ending("a", " né").bytes == 3


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("lambada", "one two\nalone\n", r"line 2: expected a passage of two or more words.*got 'alone'"),
        ("lambada", "one two\n\nthree four\n", r"line 2: expected a passage of two or more words"),
        ("lambada", "", "is empty"),
        ("hellaswag", "a\n7\nb\nc\nd\ne\n", "line 2: expected the number of the correct ending, 0 to 3, got '7'"),
        ("hellaswag", "a\n1\nb\n\nd\ne\n", "line 1: an ending is empty"),
        ("hellaswag", SIX + "a\n1\n", "line 8: the file ends inside an example"),
        ("hellaswag", lines(PIQA), "line 1: no endings, .* name its file, or the benchmark that this is of"),
        ("piqa", lines(PIQA), "line 1: no label, so nothing can be scored; name the file that has them"),
        ("piqa", lines({**PIQA, "label": 0}, {**PIQA, "label": 2}), "line 2: expected the number of the right one, 0"),
        ("piqa", lines({**PIQA, "sol2": " "}), "line 1: an ending is empty"),
        ("piqa", '{"goal": "a"}\n', "line 1: no key 'sol1'"),
        ("piqa", "just text\n", "line 1: expected JSON lines with goal, sol1 and sol2"),
        ("piqa", lines(PIQA) + "{\n", "line 2: not JSON"),
        ("winogrande", lines({**WINOGRANDE, "sentence": "no blank"}), "line 1: expected a sentence with one '_'"),
        ("winogrande", lines({**WINOGRANDE, "sentence": "_ and _ ."}), "line 1: expected a sentence with one '_'"),
        ("winogrande", lines({**WINOGRANDE, "sentence": "It was _"}), "line 1: nothing follows the blank"),
        ("winogrande", lines({**WINOGRANDE, "option1": ""}), "line 1: an option is empty"),
        ("winogrande", lines({**WINOGRANDE, "answer": "0"}), "line 1: expected the number of the right one, 1 to 2"),
        ("winogrande", lines({**WINOGRANDE, "answer": True}), "1 to 2, got True"),
    ],
)
def test_invalid_files(task: str, content: str, message: str, write: Callable[[str, str], Path]) -> None:
    with pytest.raises(InputError, match=message):
        read_items(task, write("data.txt", content))


def test_a_table_without_the_hellaswag_columns(write: Callable[[str, str], Path]) -> None:
    with pytest.raises(InputError, match=r"header with sent1, .*text, label; .*HellaSwag's"):
        read_items("hellaswag", write("data.csv", "text,label\na,1\n"))


def test_labels_that_do_not_match(write: Callable[[str, str], Path]) -> None:
    data = write("p.jsonl", lines(PIQA, PIQA))
    with pytest.raises(InputError, match=r"has 2 examples and .*3 labels"):
        read_items("piqa", data, labels=write("l.lst", "0\n1\n0\n"), limit=1)
    with pytest.raises(InputError, match=r"l\.lst line 2: expected the number .*0 to 1, got 'x'"):
        read_items("piqa", data, labels=write("l.lst", "0\nx\n"))
    with pytest.raises(InputError, match="lambada needs no labels"):
        read_items("lambada", data, labels=data)
    with pytest.raises(InputError, match="read from files"):
        read_items("lambada", "-")
    with pytest.raises(InputError, match="limit is 0"):
        read_items("lambada", data, limit=0)
    with pytest.raises(InputError, match="unknown benchmark 'piqua'; did you mean 'piqa'"):
        read_items("piqua", data)


def test_the_public_files(shared_data: Callable[[str], Path]) -> None:
    lambada = read_items("lambada", shared_data("lambada/lambada_development_plain_text.txt"))
    assert len(lambada) == 4869
    assert lambada[0].candidates[0].ending == " cake"
    hellaswag = read_items("hellaswag", shared_data("hellaswag/hellaswag_val_full.txt.bz2"))
    assert len(hellaswag) == 10042
    assert hellaswag[0].candidates[hellaswag[0].label].ending == " starts pulling up roofing on a roof."
    piqa = read_items("piqa", shared_data("piqa/dev.jsonl"), labels=shared_data("piqa/dev-labels.lst"))
    assert len(piqa) == 1838
    assert [item.label for item in piqa[:5]] == [0, 1, 1, 1, 0]
