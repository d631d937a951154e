"""The memory of each process that trains BERT-large falls with the number of processes."""

from __future__ import annotations

import pytest

from benchmarks.distributed import memory
from regard.training.optimizer import OptimizerName

PARAMETERS = 336_226_108


@pytest.mark.parametrize(("optimizer", "least"), [("adamw", 16.0), ("muon", 12.0)])
def test_each_process_holds_its_share_of_bert_large(optimizer: OptimizerName, least: float) -> None:
    whole = memory(1, optimizer)
    assert whole["parameters"] == whole["gradients"] == 4 * PARAMETERS
    assert least * PARAMETERS <= whole["total"] <= (16 + 1e-4) * PARAMETERS
    for size in (2, 8):
        part = memory(size, optimizer)
        for name, count in part.items():
            # Rows that do not divide evenly, and a step count for each parameter, which is not divided.
            assert count / (whole[name] / size) == pytest.approx(1, abs=1e-3), (size, name)
