"""The colors of data series are distinguishable with color vision deficiency."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

THEME = (Path(__file__).resolve().parents[2] / "web" / "src" / "theme.tsx").read_text(encoding="utf-8")
# Simulation matrices for linear RGB: Machado, Oliveira and Fernandes (2009), severity 1.
DEFICIENCY_MATRICES = {
    "full": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def simulated_lab(color: str, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """A color as seen with this deficiency, in CIELAB, where a distance of about 2 is just noticeable."""
    value = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    simulated = np.clip(matrix @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ simulated
    f = np.cbrt(xyz / np.array([0.95047, 1, 1.08883]))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("kind", DEFICIENCY_MATRICES)
@pytest.mark.parametrize(("name", "background"), [("SERIES_LIGHT", "#ffffff"), ("SERIES_DARK", "#11151a")])
def test_the_eight_colors_and_the_background_differ_pairwise(name: str, background: str, kind: str) -> None:
    found = re.search(rf"const {name} = \[(.*?)\]", THEME)
    assert found is not None
    colors = re.findall(r"#[0-9a-f]{6}", found[1])
    assert len(colors) == 8
    lab_colors = [simulated_lab(color, np.array(DEFICIENCY_MATRICES[kind])) for color in [*colors, background]]
    assert min(np.linalg.norm(a - b) for a, b in combinations(lab_colors, 2)) > 15
