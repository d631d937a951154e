"""Shards: data types, start offsets, counts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from regard.data.corpus.folder import CorpusCounts, Shard, ShardRecord, ShardWriter, token_type
from regard.errors import InputError
from regard.files.json_files import with_checksum


@pytest.mark.parametrize(("vocabulary", "size"), [(1, 2), (65_536, 2), (65_537, 4)])
def test_the_smallest_type_that_holds_every_id(vocabulary: int, size: int) -> None:
    assert token_type(vocabulary).itemsize == size
    assert np.array(vocabulary - 1, dtype=token_type(vocabulary)) == vocabulary - 1


def test_batches_are_appended(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, dtype=token_type(100), unknown=1)
    writer.add(np.array([5, 6, 7]), np.array([2, 0, 1, 0]), [3, 1])
    writer.add(np.array([], dtype=np.int32), np.array([], dtype=np.int64), [])
    writer.add(np.array([1, 1, 9]), np.array([3]), [1])
    record = writer.finish(paragraphs=4, size=30, next=(0, 3))
    assert record.counts == CorpusCounts(2, 4, 3, 6, 30, unknown=2, longest_sentence=3, dropped=2)
    assert ShardRecord.read(tmp_path) == record
    assert (tmp_path / "tokens.bin").read_bytes() == bytes([5, 0, 6, 0, 7, 0, 1, 0, 1, 0, 9, 0])
    shard = Shard.open(tmp_path, record, dtype=token_type(100))
    assert shard.tokens.tolist() == [5, 6, 7, 1, 1, 9]
    assert shard.sentences.tolist() == [0, 2, 3, 6] and shard.documents.tolist() == [0, 2, 3]


def test_counts_add_up() -> None:
    assert CorpusCounts(1, 2, 3, 4, 5, 6, 7, 8) + CorpusCounts(1, 1, 1, 1, 1, 1, 9, 1) == CorpusCounts(
        2, 3, 4, 5, 6, 7, 9, 9
    )


def test_record_of_other_files_is_rejected(tmp_path: Path) -> None:
    document = {"counts": {}, "next": [0, 1], "files": {"../../secret": [1, "x"]}}
    (tmp_path / "shard.json").write_text(json.dumps(with_checksum(document)))
    with pytest.raises(InputError, match=r"shard\.json is not the record"):
        ShardRecord.read(tmp_path)
