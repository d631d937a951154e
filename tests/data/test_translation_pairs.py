"""Translation pairs from files, and splits without shared sentences."""

from __future__ import annotations

import gzip
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.readers import ExampleSet, TableOptions
from regard.data.translation_pairs import (
    TranslationPair,
    hold_out,
    pairs_digest,
    read_translation_pairs,
    split_held_out,
)
from regard.errors import InputError

sides = st.sampled_from("abcdefgh")
pairs = st.lists(st.builds(TranslationPair, sides, sides.map(str.upper)), min_size=2, max_size=30)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def columns(names: str | None) -> TableOptions:
    return TableOptions.parse(names, missing="skip")


def test_two_files_line_by_line(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", "One.\n Two. \n\n\nFive.\n")
    target = write(tmp_path / "a.de", "Eins.\nZwei.\nDrei.\n\nFünf.\n")
    with pytest.raises(InputError, match=r"a\.de line 3: one side is empty; .*--missing skip"):
        read_translation_pairs(source, target)
    found = read_translation_pairs(source, target, table=TableOptions(missing="skip"))
    assert found.examples == [("One.", "Eins."), ("Two.", "Zwei."), ("Five.", "Fünf.")]
    assert found.lines == [1, 2, 5]
    assert found.dropped == {"one side is empty": 1, "both sides are empty": 1}
    assert found.path == f"{source} + {target}"


def test_files_with_different_numbers_of_lines(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.en", "1\n2\n3\n"), write(tmp_path / "a.de", "1\n2\n")
    with pytest.raises(InputError, match=r"a\.en has 3 lines and \S+a\.de has 2: line 3"):
        read_translation_pairs(source, target)
    with pytest.raises(InputError, match=r"line 3 of \S+a\.en has no counterpart"):
        read_translation_pairs(target, source)


def test_compressed_files(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"eins\nzwei\n"))
    (tmp_path / "b.xz").write_bytes(lzma.compress(b"one\ntwo\n"))
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("deu.txt", "\ufeffone\teins\r\ntwo\tzwei\r\n")
        archive.writestr("_about.txt", "who made it")
    expected = [("eins", "one"), ("zwei", "two")]
    assert read_translation_pairs(tmp_path / "a.gz", tmp_path / "b.xz").examples == expected
    assert read_translation_pairs(tmp_path / "c.zip", table=columns("1,0")).examples == expected


def test_table_columns_by_number_and_by_name(tmp_path: Path) -> None:
    table = write(tmp_path / "p.tsv", "en\tde\tby\none\teins\tCC\n\nthree\tdrei\tCC\n\n")
    with pytest.raises(InputError, match=r"p\.tsv line 3: both sides are empty"):
        read_translation_pairs(table, table=TableOptions(columns=("de", "en")))
    assert read_translation_pairs(table, table=columns("de,en")).examples == [("eins", "one"), ("drei", "three")]
    assert read_translation_pairs(table, table=columns("de,en")).lines == [2, 4]
    assert read_translation_pairs(table, table=columns(None)).examples[0] == ("en", "de")
    assert read_translation_pairs(table, table=columns("2,0")).examples[1] == ("CC", "one")
    with pytest.raises(InputError, match="no column 'dee'; did you mean 'de'"):
        read_translation_pairs(table, table=columns("dee,en"))
    with pytest.raises(InputError, match=r"no column '3'; .*a number from 0 to 2"):
        read_translation_pairs(table, table=columns("3,0"))
    with pytest.raises(InputError, match="expected two, source and target"):
        read_translation_pairs(table, table=columns("1"))
    with pytest.raises(InputError, match="--columns and --delimiter are for one table"):
        read_translation_pairs(table, table, table=columns("1,0"))


def test_empty_files_are_rejected(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty", "\n\n")
    with pytest.raises(InputError, match="has no pair with text on both sides"):
        read_translation_pairs(empty, empty)


@given(pairs=pairs, seed=st.integers(0, 5))
def test_splits_share_no_sentence(pairs: list[TranslationPair], seed: int) -> None:
    count = max(len(pairs) // 3, 1)
    try:
        learned, out = hold_out(pairs, count, seed)
    except InputError as error:
        assert "share sentences" in str(error)
        return
    assert len(out) == count and sorted(learned + out) == sorted(pairs)
    assert not {pair.source for pair in learned} & {pair.source for pair in out}
    assert not {pair.target for pair in learned} & {pair.target for pair in out}
    assert hold_out(pairs, count, seed) == (learned, out)


def test_pairs_connected_by_sentences_stay_together() -> None:
    chain = [TranslationPair("a", "A"), TranslationPair("a", "B"), TranslationPair("b", "B"), TranslationPair("b", "C")]
    alone = [TranslationPair(str(number), str(number)) for number in range(20)]
    for seed in range(20):
        _, out = hold_out([*chain, *alone], 6, seed)
        assert len([pair for pair in chain if pair in out]) in (0, 4)
        assert len(out) == 6
    assert len({tuple(hold_out([*chain, *alone], 6, seed)[1]) for seed in range(20)}) > 10
    with pytest.raises(InputError, match="only 0 of 2 pairs can be held out"):
        hold_out(chain, 2)
    with pytest.raises(InputError, match="expected at least 1"):
        hold_out(chain, 4)


def test_parts_share_no_sentence() -> None:
    pairs = [TranslationPair(str(number % 90), str(number)) for number in range(100)]
    whole = ExampleSet(pairs, "file", "made", {"one side is empty": 2})
    train, dev, test = split_held_out(whole, None, out=7)
    assert test is not None and (len(train.examples), len(dev.examples), len(test.examples)) == (84, 9, 7)
    sources = [{pair.source for pair in part.examples} for part in (train, dev, test)]
    assert not sources[0] & sources[1] and not sources[0] & sources[2] and not sources[1] & sources[2]
    assert train.dropped == {"one side is empty": 2} and "7 held out for testing" in test.description
    assert split_held_out(train, dev) == (train, dev, None)


def test_tatoeba_pairs_with_shared_sentences_stay_together(shared_data: Callable[[str], Path]) -> None:
    read = read_translation_pairs(shared_data("tatoeba-en-de/deu-eng.zip"), table=columns("1,0"))
    assert read.examples[0] == ("Hallo!", "Hi.") and len(read.examples) > 100_000
    learned, out = hold_out(read.examples, 2000, seed=1)
    assert len(out) == 2000 and len(learned) + 2000 == len(read.examples)
    for side in (0, 1):
        assert not {pair[side] for pair in learned} & {pair[side] for pair in out}


def test_multi30k_has_the_documented_number_of_lines(shared_data: Callable[[str], Path]) -> None:
    found = read_translation_pairs(shared_data("multi30k/val.en.gz"), shared_data("multi30k/val.de.gz"))
    assert len(found.examples) == 1014 and not found.dropped


def test_digest_depends_on_content_and_order() -> None:
    one = [TranslationPair("a", "b"), TranslationPair("c", "d")]
    assert pairs_digest(one) == pairs_digest(list(one)) != pairs_digest(one[::-1])
    assert pairs_digest([TranslationPair("a", "b', 'c")]) != pairs_digest([TranslationPair("a', 'b", "c")])
