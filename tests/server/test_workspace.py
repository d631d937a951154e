"""Where the studio writes and what the page may name: one folder, the files given with --data, nothing else."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from regard.errors import InputError
from regard.events import drain
from regard.models import Vit, VitConfig
from regard.server import studio as workspace
from regard.server import training
from regard.server.model_registry import ModelRegistry
from regard.server.serve import serve
from regard.server.studio import Studio, Workspace
from regard.server.verbs import run_verb

SECRET = "root:x:0:0:not to be quoted"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the studio is started, in a home with a file that is nobody's business."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "project").mkdir()
    (tmp_path / "secret.tsv").write_text(f"{SECRET}\n" * 3, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.mark.parametrize("folder", ["/", ".", "..", "~", "", "trained/..", "project"])
def test_folders_that_the_studio_must_not_fill(place: Path, folder: str) -> None:
    (place / "project" / ".git").mkdir(parents=True)
    with pytest.raises(InputError, match="--output"):
        Workspace(folder).check()
    with pytest.raises(InputError, match="--output"):
        serve([], port=0, folder=folder)
    Workspace("project/trained").check()
    Workspace("~/elsewhere").check()


def test_data_must_be_there_and_the_folder_no_file(place: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        Workspace("trained", ["nothing.tsv"]).check()
    (place / "trained").write_text("")
    with pytest.raises(InputError, match="is a file"):
        Workspace("trained").check()


@pytest.mark.parametrize(
    "name",
    ["/", ".", "..", "~", "../x", "trained/../../x", "/tmp/x", "~/project/trained", "link/x", "\0", "~/x", "/etc"],
)
def test_outputs_are_below_the_folder(place: Path, name: str) -> None:
    (place / "trained").mkdir()
    (place / "trained" / "link").symlink_to(place.parent)
    with pytest.raises(InputError):
        Workspace().output(name)


def test_names_of_outputs(place: Path) -> None:
    for name in ("mine", "trained/mine", "./trained/mine", str(place / "trained" / "mine"), "~/project/trained/mine"):
        assert Workspace().output(name) == Path("trained/mine")
    assert Workspace("/srv/models").output("a/b") == Path("/srv/models/a/b")


def test_only_stated_files_are_read(place: Path) -> None:
    (place / "trained").mkdir()
    (place / "trained" / "link.tsv").symlink_to(place.parent / "secret.tsv")
    (place / "films.tsv").write_text("")
    (place / "data").mkdir()
    given = Workspace("trained", ["films.tsv", "data"])
    for name in ("~/secret.tsv", "../secret.tsv", "/etc/passwd", "/dev/zero", "trained/../../secret.tsv", "..", "\0"):
        with pytest.raises(InputError):
            given.readable(name)
    assert given.readable("link.tsv") == place / "data" / "link.tsv"  # which there is not: a link is what it leads to
    assert given.readable("films.tsv") == place / "films.tsv"
    assert given.readable("data/a.tsv") == given.readable(str(place / "data" / "a.tsv"))
    assert given.readable("new.tsv") == place / "trained" / "new.tsv"


def test_uploads_have_a_quota(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Workspace()
    here.check_quota(10)
    (place / "trained" / "model").mkdir(parents=True)
    (place / "trained" / "model" / "weights").write_bytes(bytes(1000))  # of a model, not of an upload
    monkeypatch.setattr(workspace, "MAX_BYTES", 500)
    monkeypatch.setattr(workspace, "MAX_FILES", 2)
    here.check_quota(500)
    (place / "trained" / "a.tsv").write_bytes(bytes(300))
    here.check_quota(200)
    with pytest.raises(InputError, match="1 files of 300 bytes"):
        here.check_quota(201)
    (place / "trained" / "b.tsv").write_bytes(b"")
    with pytest.raises(InputError, match="2 files"):
        here.check_quota(0)
    order = {"task": "classify", "content": "a\tb\n", "name": "c.tsv"}
    with pytest.raises(InputError, match="2 files"):
        training.start_training(Studio(ModelRegistry([])), order)
    assert sorted(os.listdir(place / "trained")) == ["a.tsv", "b.tsv", "model"]


@pytest.mark.parametrize("task", ["classify", "tag", "answer", "pair", "regress", "choose"])
def test_no_training_quotes_a_file_from_elsewhere(place: Path, task: str) -> None:
    with pytest.raises(InputError) as told:
        training.start_training(Studio(ModelRegistry([])), {"task": task, "path": "~/secret.tsv"})
    assert "root" not in str(told.value) and "--data" in str(told.value)
    assert not (place / "trained").exists()


@pytest.mark.parametrize("output", ["/", ".", "~", "..", "/tmp/regard-elsewhere"])
def test_no_training_writes_elsewhere(place: Path, output: str) -> None:
    order = {"task": "classify", "content": "good\ta\nbad\tb\n", "output": output}
    with pytest.raises(InputError, match="not below trained"):
        training.start_training(Studio(ModelRegistry([])), order)
    assert os.listdir(place) == []


def test_no_prediction_shows_a_picture_from_elsewhere(place: Path) -> None:
    from PIL import Image

    from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
    from regard.tasks.image_classification import ImageClassifier, ImageTask

    Image.new("RGB", (8, 8), (200, 0, 0)).save(place.parent / "red.png")
    (place / "trained").mkdir()
    Image.new("RGB", (8, 8), (200, 0, 0)).save(place / "trained" / "red.png")
    encoder = Vit(
        VitConfig(
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=8,
            image_size=(8, 8),
            patch_size=(4, 4),
            num_labels=2,
        )
    )
    save_fine_tuned(
        FineTunedModel(ImageTask(["a", "b"]), ImageClassifier(encoder).eval(), None, 0), place / "trained" / "looks"
    )
    registry = ModelRegistry(["trained/looks"])
    registry.start().join()
    studio = Studio(registry)
    for path in ("../red.png", "trained/red.png"):
        with pytest.raises(InputError, match="this model reads images"):
            drain(run_verb(studio, "predict", {"model": "trained/looks", "source": path}))
    content = base64.b64encode((place / "trained" / "red.png").read_bytes()).decode()
    key = studio.images.add({"name": "red.png", "content": content}).image
    result = drain(run_verb(studio, "predict", {"model": "trained/looks", "source": key}))
    assert len(result.to_dict()["predictions"]) == 1 and " red.png" in str(result.page_data()["cli"])
