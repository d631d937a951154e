"""The queue of a model: batches by tokens, turns between clients, lanes."""

from __future__ import annotations

import threading

import pytest

from regard.server.models.batch_queue import SPLIT_PIECES, BatchQueue, Piece


def piece(request: int, client: str = "a", kind: str = "embed", tokens: int = 10) -> Piece:
    return Piece(request, client, kind, tokens, None)


def numbers(queue: BatchQueue, max_tokens: int, lane: int = 0) -> list[int]:
    batch = queue.take(max_tokens, lane)
    assert batch is not None
    return [one.request for one in batch.pieces]


def test_pieces_of_many_clients_share_a_batch_up_to_its_tokens() -> None:
    queue = BatchQueue()
    queue.put([piece(1, "a"), piece(2, "b"), piece(3, "c"), piece(4, "d")])
    assert numbers(queue, 30) == [1, 2, 3] and len(queue) == 1
    queue.finish()
    assert numbers(queue, 30) == [4] and len(queue) == 0


def test_clients_take_turns() -> None:
    queue = BatchQueue()
    queue.put([*(piece(number, "greedy") for number in range(1, 7)), piece(8, "other"), piece(9, "third")])
    assert numbers(queue, 40) == [1, 8, 9, 2]
    queue.finish()
    queue.put([piece(10, "late")])
    assert numbers(queue, 20) == [3, 10]


def test_a_client_that_found_no_room_is_first_in_the_next_batch() -> None:
    queue = BatchQueue()
    queue.put([piece(1, "a"), piece(2, "b", tokens=100), piece(3, "c")])
    assert numbers(queue, 50) == [1, 3]
    queue.finish()
    queue.put([piece(4, "a")])
    assert numbers(queue, 50) == [2]  # larger than a batch, so alone


def test_kinds_are_not_mixed_and_the_longest_wait_decides() -> None:
    queue = BatchQueue()
    queue.put([piece(1, "a"), piece(2, "b", "task"), piece(3, "c")])
    assert numbers(queue, 100) == [1, 3]
    queue.finish()
    queue.put([piece(4, "d")])
    assert numbers(queue, 100) == [2]


def test_a_discarded_request_leaves_the_queue_with_all_its_pieces() -> None:
    queue = BatchQueue()
    queue.put([piece(1, "a"), piece(1, "a"), piece(2, "a"), piece(3, "b")])
    assert queue.discard("a", 1) == 2 and queue.discard("a", 1) == 0 and queue.discard("z", 3) == 0
    assert numbers(queue, 100) == [2, 3]
    assert queue._tokens == 0 and queue._size == 0


def test_a_piece_without_a_kind_has_the_model_to_itself() -> None:
    queue = BatchQueue(lanes=2)
    queue.put([piece(1, "a"), piece(2, "b", ""), piece(3, "c", "")])
    assert numbers(queue, 100) == [1]
    taken: list[list[int]] = []
    lane = threading.Thread(target=lambda: taken.append(numbers(queue, 100, 1)), daemon=True)
    lane.start()
    lane.join(0.05)
    assert not taken  # the batch is not finished
    queue.finish()
    lane.join(60)
    assert taken == [[2]]
    other = threading.Thread(target=lambda: taken.append(numbers(queue, 100, 0)), daemon=True)
    other.start()
    other.join(0.05)
    assert len(taken) == 1
    queue.finish()
    other.join(60)
    assert taken == [[2], [3]]


def test_idle_lanes_divide_what_waits() -> None:
    queue = BatchQueue(lanes=2)
    queue.put(piece(number, str(number)) for number in range(1, SPLIT_PIECES + 1))
    first = queue.take(10_000, 0)
    second = queue.take(10_000, 1)
    assert first is not None and second is not None
    assert len(first.pieces) == len(second.pieces) == SPLIT_PIECES // 2
    assert not first.alone and not second.alone


def test_a_lone_request_may_use_all_cores() -> None:
    queue = BatchQueue(lanes=2)
    queue.put([piece(1)])
    batch = queue.take(100)
    assert batch is not None and batch.alone


@pytest.mark.parametrize("lanes", [1, 3])
def test_every_piece_is_taken_once_by_lanes_at_the_same_time(lanes: int) -> None:
    queue, taken = BatchQueue(lanes), []

    def run(lane: int) -> None:
        while batch := queue.take(50, lane):
            taken.extend(one.request for one in batch.pieces)
            queue.finish()

    threads = [threading.Thread(target=run, args=(lane,), daemon=True) for lane in range(lanes)]
    for thread in threads:
        thread.start()
    for start in range(0, 300, 3):
        kinds = ("embed", "", "task")
        queue.put(piece(start + shift, str(start % 7), kinds[start % 3]) for shift in range(3))
    queue.close()
    for thread in threads:
        thread.join(60)
    assert sorted(taken) == list(range(300))
