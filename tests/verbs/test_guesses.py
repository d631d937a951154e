"""What users of numpy, pandas, scikit-learn and command lines try first."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import regard
from regard.cli.app import run
from regard.errors import InputError
from regard.inference.translation.result import TranslatedText, TranslationResult
from regard.inference.translation.translator import Translation

TEXTS = ["the film was good", "a bad day", "the film was good"]


def test_vectors_are_an_array(tiny_bert_folder: Path, tmp_path: Path) -> None:
    result = regard.embed(TEXTS, model=tiny_bert_folder)
    assert len(result) == 3 and result.shape == result.vectors.shape == (3, result.width)
    np.testing.assert_array_equal(np.asarray(result), result.vectors)
    assert np.asarray(result, dtype=np.float64).dtype == np.float64
    assert np.array(result) is not result.vectors
    for text, vector in zip(range(3), result, strict=True):
        np.testing.assert_array_equal(vector, result[text])
    written = regard.embed(TEXTS, model=tiny_bert_folder, output=tmp_path / "out.npy")
    assert len(written) == 3 and written.shape == (3, result.width)
    with pytest.raises(InputError, match=r"the vectors are in .*out\.npy; read them with numpy\.load"):
        np.asarray(written)


def test_cosines_of_texts(tiny_bert_folder: Path) -> None:
    result = regard.embed([*TEXTS, None], model=tiny_bert_folder)
    cosines = result.similarity()
    unit = result.vectors[:3] / np.linalg.norm(result.vectors[:3], axis=1, keepdims=True)
    np.testing.assert_allclose(cosines[:3, :3], unit @ unit.T, atol=1e-6)
    assert np.isnan(cosines[3]).all() and np.isnan(cosines[:, 3]).all()
    others = regard.embed(["a day"], model=tiny_bert_folder)
    assert result.similarity(others).shape == (4, 1)
    with pytest.raises(InputError, match="other vectors"):
        result.similarity(regard.embed(["a day"], model=tiny_bert_folder, pooling="max"))
    with pytest.raises(InputError, match=r"result\.similarity\(regard\.embed\(texts\)\)"):
        result.similarity(["a day"])  # type: ignore[arg-type]


def test_the_error_of_similarity_names_the_cosines_of_texts() -> None:
    with pytest.raises(InputError, match=r"regard\.embed\(texts\)\.similarity\(\)"):
        regard.similarity("a text", ["another text"])


def test_one_column_is_a_string(tiny_bert_folder: Path) -> None:
    frame = pd.DataFrame({"a": TEXTS, "b": ["x", "y", "z"]})
    assert len(regard.embed(frame, columns="a", model=tiny_bert_folder)) == 3


def test_estimators_have_epochs(tiny_bert_folder: Path) -> None:
    classifier = regard.TextClassifier(str(tiny_bert_folder), epochs=1, device="cpu")
    assert classifier.get_params()["epochs"] == 1
    assert list(classifier.fit(TEXTS, [1, 0, 1]).classes_) == [0, 1]
    assert regard.Tagger(epochs=2).epochs == 2


def test_translations_are_a_table() -> None:
    numbers = {"ids": (3,), "log_probability": -1.0, "score": -0.5, "finished": True}
    best, second = (Translation(text=text, **numbers) for text in ("a dog", "the dog"))  # type: ignore[arg-type]
    result = TranslationResult(model="m", texts=[TranslatedText("ein Hund", [best, second]), TranslatedText("", [])])
    frame = result.to_pandas()
    assert list(frame.columns) == ["text", "source", "translation", "log_probability", "score"]
    assert frame.values.tolist()[:2] == [[0, "ein Hund", "a dog", -1.0, -0.5], [0, "ein Hund", "the dog", -1.0, -0.5]]
    assert frame["source"].tolist() == ["ein Hund", "ein Hund", ""] and pd.isna(frame["translation"][2])


def test_version_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == 0
    assert capsys.readouterr().out == f"regard {importlib.metadata.version('regard')}\n"


def test_quiet_and_verbose(tmp_path: Path, tiny_bert_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "texts.csv"
    path.write_text("text,label\na film,1\na day,0\n", encoding="utf-8")
    command = ["embed", str(path), "--model", str(tiny_bert_folder)]
    assert run(command) == 0
    normal = capsys.readouterr()
    assert "comma-separated" in normal.err
    for quiet in (["-q", *command], [*command, "--quiet"]):
        assert run(quiet) == 0
        assert capsys.readouterr() == (normal.out, "")
    assert run([*command, "-v"]) == 0
    verbose = capsys.readouterr()
    assert verbose.out == normal.out and set(normal.err.split(":")[:1]) <= set(verbose.err.split(":"))
    assert "torch" in verbose.err and "peak memory" in verbose.err
    assert run(["-q", "embed", str(tmp_path / "absent.txt")]) == 2
    assert "no file" in capsys.readouterr().err
    assert run(command) == 0
    assert "comma-separated" in capsys.readouterr().err  # quiet for one run only
    assert run([*command, "-q", "-v"]) == 2


TYPED = """
import numpy as np
from numpy.typing import NDArray
import regard

result = regard.embed(["a"], columns="text")
vectors: NDArray[np.float32] = result.vectors
reveal_type(result.vectors)
reveal_type(result.similarity())
reveal_type(result.shape)
reveal_type(regard.generate(["a", "b"]).results)
reveal_type(regard.translate("m", "a").texts)
"""


@pytest.mark.long
def test_results_are_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    file = tmp_path / "typed.py"
    file.write_text(TYPED, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(file)]
    out = subprocess.run(command, capture_output=True, text=True).stdout
    revealed = [line.partition("Revealed type is ")[2] for line in out.splitlines() if "Revealed" in line]
    assert len(revealed) == 5 and not any("Any" in line.replace("tuple[Any", "") for line in revealed), out
    assert "ndarray" in revealed[0] and "32" in revealed[0] and "error" not in out, out
