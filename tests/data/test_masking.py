"""Masked language modeling: number and choice of masked tokens, their replacements, and the targets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from regard.data.masking import IGNORE_INDEX, MaskedBatch, Masking

VOCABULARY, MASK = 60, 4
SPECIAL = torch.arange(VOCABULARY) < 5
CONTINUES = torch.arange(VOCABULARY) >= 30

IDS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=60)
RATES = st.sampled_from([0.01, 0.15, 0.5, 0.99])


def seeded(seed: int = 0, device: torch.device | str = "cpu") -> torch.Generator:
    return torch.Generator(device=device).manual_seed(seed)


def masking(*, words: bool = False, device: torch.device | str = "cpu", rate: float = 0.15) -> Masking:
    continues = CONTINUES.to(device) if words else None
    return Masking(SPECIAL.to(device), mask=MASK, rate=rate, continues=continues)


def target_positions(masked: MaskedBatch) -> Tensor:
    """Positions of the tokens to predict."""
    return masked.positions[masked.targets != IGNORE_INDEX]


def words_of(ids: Sequence[int]) -> list[list[int]]:
    """Lists of the positions of each word, without special tokens."""
    words: list[list[int]] = []
    inside = False
    for position, token in enumerate(ids):
        if token < 5:
            inside = False
        elif token >= 30 and inside:
            words[-1].append(position)
        else:
            words.append([position])
            inside = True
    return words


@given(IDS, RATES, st.booleans(), st.one_of(st.none(), st.integers(0, 80)), st.integers(0, 2**63 - 1))
@example([1, 2, 3], 0.15, False, None, 0)
@example([1, 2, 3], 0.15, True, None, 0)
@example([7], 0.15, False, None, 0)
@example([1, 7, 2], 0.15, True, 1, 0)
@example([1, 40, 2], 0.15, True, 3, 0)
def test_invariants_of_random_masks(ids: list[int], rate: float, words: bool, holes: int | None, seed: int) -> None:
    before = torch.tensor(ids, dtype=torch.int32)
    masked = masking(words=words, rate=rate)(before, seeded(seed), num_positions=holes)
    assert before.tolist() == ids
    assert masked.ids.shape == before.shape and masked.ids.dtype == before.dtype
    assert masked.positions.shape == masked.targets.shape
    assert masked.targets.dtype == torch.int64
    assert len(set(masked.positions.tolist())) == len(masked.positions)
    chosen = target_positions(masked)
    assert not SPECIAL[before[chosen].long()].any()
    assert masked.targets[masked.targets != IGNORE_INDEX].tolist() == before[chosen].tolist()
    changed = (masked.ids != before).nonzero().squeeze(1)
    assert set(changed.tolist()) <= set(chosen.tolist())
    assert all(token == MASK or token >= 5 for token in masked.ids[changed].tolist())
    maskable = sum(token >= 5 for token in ids)
    wanted = max(maskable * rate, 1) if maskable else 0
    room = len(ids) if holes is None else min(holes, len(ids))
    assert len(masked.positions) == room if holes is not None else True
    if not words:
        assert abs(len(chosen) - min(wanted, room)) < 0.501
    else:
        assert len(chosen) < min(wanted, room) + 0.501
        for word in words_of(ids):
            assert len({position in chosen for position in word}) == 1


def test_fifteen_percent_and_at_least_one_token_are_masked() -> None:
    for count in range(1, 80):
        ids = torch.tensor([1, *[7] * count, 2])
        assert len(masking()(ids, seeded()).positions) == max(round(0.15 * count), 1)


def test_rate_applies_to_the_whole_batch() -> None:
    ids = torch.randint(5, VOCABULARY, (6, 20), generator=seeded())
    flat, rows = masking()(ids.flatten(), seeded(1)), masking()(ids, seeded(1))
    assert rows.ids.shape == (6, 20) and torch.equal(rows.ids.flatten(), flat.ids)
    assert torch.equal(rows.positions, flat.positions) and torch.equal(rows.targets, flat.targets)
    assert len(rows.positions) == 18


def test_fractions_of_mask_random_and_unchanged(device: torch.device) -> None:
    """80/10/10 of the chosen tokens; random replacements are any non-special token."""
    ids = torch.randint(5, VOCABULARY, (100_000,), generator=seeded()).to(device)
    masked = masking(device=device)(ids, seeded(1, device))
    assert len(masked.positions) == 15_000 and (masked.targets == ids[masked.positions]).all()
    shown = masked.ids[masked.positions]
    hidden, unchanged = (shown == MASK).double().mean().item(), (shown == masked.targets).double().mean().item()
    assert abs(hidden - 0.8) < 0.015
    assert abs(unchanged - (0.1 + 0.1 / 55)) < 0.012  # a random replacement may equal the original
    others = shown[(shown != MASK) & (shown != masked.targets)]
    counts = torch.bincount(others.cpu(), minlength=VOCABULARY)
    assert (counts[5:] > 0).all() and not counts[:5].any()
    assert counts.max() < 3 * counts[5:].double().mean()


@pytest.mark.parametrize("replace", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)])
def test_replacement_fractions_can_be_set(replace: tuple[float, float, float]) -> None:
    ids = torch.randint(5, VOCABULARY, (2000,), generator=seeded())
    masked = Masking(SPECIAL, mask=MASK, replace=replace)(ids, seeded(1))
    shown, originals = masked.ids[masked.positions], ids[masked.positions]
    assert ((shown == MASK).all(), torch.equal(shown, originals)) == (replace[0] == 1, replace[2] == 1)


def test_every_position_is_equally_likely() -> None:
    ids = torch.tensor([1, *range(5, 45), 2])
    generator, counts = seeded(), torch.zeros(42)
    for _ in range(2000):
        counts[target_positions(masking()(ids, generator))] += 1
    assert not counts[[0, -1]].any()
    assert (counts[1:-1] / 2000 - 0.15).abs().max() < 0.04


def test_masks_are_reproducible_with_a_seed(device: torch.device) -> None:
    ids = torch.randint(5, VOCABULARY, (400,), generator=seeded()).to(device)
    for words in (False, True):
        mask = masking(words=words, device=device)
        one, again, other = (mask(ids, seeded(seed, device)) for seed in (3, 3, 4))
        assert all(torch.equal(getattr(one, name), getattr(again, name)) for name in ("ids", "positions", "targets"))
        assert set(one.positions.tolist()) != set(other.positions.tolist())
    generator = seeded(3, device)
    assert not torch.equal(masking(device=device)(ids, generator).ids, masking(device=device)(ids, generator).ids)


def test_global_random_state_is_unchanged() -> None:
    before = torch.get_rng_state()
    masking()(torch.arange(5, 50), seeded())
    assert torch.equal(torch.get_rng_state(), before)


def test_whole_word_masking_approximates_the_rate_and_includes_long_words() -> None:
    ids = torch.randint(5, VOCABULARY, (5000,), generator=seeded())
    words = words_of(ids.tolist())
    chosen = set(target_positions(masking(words=True)(ids, seeded(1))).tolist())
    longest = max(map(len, words))
    assert 750 - longest < len(chosen) <= 750
    hidden = [word for word in words if word[0] in chosen]
    share = {size: len(list(group)) for size, group in groupby(sorted(map(len, hidden)))}
    total = {size: len(list(group)) for size, group in groupby(sorted(map(len, words)))}
    for size in (1, 2, 3):
        assert abs(share[size] / total[size] - 0.15) < 0.06


def test_words_do_not_continue_in_the_next_row() -> None:
    """A row may begin in the middle of a word, also after [CLS]."""
    ids = torch.full((40, 4), 50)
    together = 0
    for seed in range(5):
        chosen = set(target_positions(masking(words=True, rate=0.3)(ids, seeded(seed))).tolist())
        assert len(chosen) == 48
        assert all(len({4 * row + position in chosen for position in range(4)}) == 1 for row in range(40))
        together += len({position // 4 for position in chosen})
    assert together == 60
    ids = torch.tensor([1, 50, 1, 50])
    assert {tuple(target_positions(masking(words=True)(ids, seeded(seed))).tolist()) for seed in range(20)} == {
        (1,),
        (3,),
    }


@pytest.mark.parametrize("words", [False, True])
def test_num_positions_gives_all_batches_the_same_shape(words: bool) -> None:
    mask = masking(words=words)
    for special in (0, 10, 39, 40):
        ids = torch.randint(5, 30, (40,), generator=seeded())
        ids[:special] = 2
        masked = mask(ids, seeded(1), num_positions=6)
        assert masked.positions.shape == masked.targets.shape == (6,)
        assert (masked.targets != IGNORE_INDEX).sum() == min(max(round((40 - special) * 0.15), 1), 40 - special)


def test_batch_of_special_tokens_has_no_targets() -> None:
    ids = torch.tensor([[0, 1, 2], [3, 4, 0]])
    for words in (False, True):
        masked = masking(words=words)(ids, seeded())
        assert torch.equal(masked.ids, ids) and masked.targets.tolist() == [IGNORE_INDEX]


@pytest.mark.parametrize("words", [False, True])
def test_masking_does_not_synchronize_with_the_device(words: bool) -> None:
    """With `num_positions` no value is read from the device, so meta tensors work too."""
    mask = masking(words=words)
    with FakeTensorMode() as mode:
        mask.special, mask.ordinary = mode.from_tensor(mask.special), mode.from_tensor(mask.ordinary)
        mask.continues = None if mask.continues is None else mode.from_tensor(mask.continues)
        ids = torch.zeros(8, 16, dtype=torch.int32)
        assert mask(ids, seeded(), num_positions=19).positions.shape == (19,)
        with pytest.raises(DataDependentOutputException):
            mask(ids, seeded())
