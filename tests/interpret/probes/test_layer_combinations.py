"""Layer combinations of the lecture's table for deep and shallow models."""

from __future__ import annotations

from regard.interpret.probes.probe_heads import DECK, deck_combinations, scalar_mix, single_layers


def test_the_rows_for_bert_base() -> None:
    rows = {one.name: (one.operation, one.layers) for one in deck_combinations(13)}
    assert rows == {
        "First Layer": ("only", (0,)),
        "Last Hidden Layer": ("only", (12,)),
        "Sum All Layers": ("sum", tuple(range(1, 13))),
        "Second-to-Last Hidden Layer": ("only", (11,)),
        "Sum Last Four Hidden": ("sum", (9, 10, 11, 12)),
        "Concat Last Four Hidden": ("concat", (9, 10, 11, 12)),
    }
    assert list(rows) == list(DECK)
    assert list(DECK.values()) == [91.0, 94.9, 95.5, 95.6, 95.9, 96.1]


def test_shallow_models_sum_all_their_layers() -> None:
    rows = {one.name: one.layers for one in deck_combinations(3)}
    assert rows["Sum Last Four Hidden"] == rows["Sum All Layers"] == (1, 2)
    assert {chosen for one in deck_combinations(1) for chosen in one.layers} == {0}


def test_every_layer_and_the_mix() -> None:
    assert [one.layers for one in single_layers(4)] == [(0,), (1,), (2,), (3,)]
    assert len({one.name for one in single_layers(4)}) == 4
    assert scalar_mix(4).layers == (0, 1, 2, 3)
