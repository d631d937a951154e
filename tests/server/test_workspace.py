"""File access of the studio: it uses one folder and the files given with --data, nothing else."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from regard.errors import InputError
from regard.events import drain
from regard.models import Vit, VitConfig
from regard.server.models.client_verbs import run_verb
from regard.server.models.images import UploadedImages
from regard.server.run import run_studio
from regard.server.studio import training, workspace
from regard.server.studio.routes import Studio, Workspace
from tests.server.local import local_registry, verb_host

SECRET = "root:x:0:0:not to be quoted"


@pytest.fixture
def studio_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the studio, in a home directory that holds a private file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "project").mkdir()
    (tmp_path / "secret.tsv").write_text(f"{SECRET}\n" * 3, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.mark.parametrize("folder", ["/", ".", "..", "~", "", "trained/..", "project"])
def test_folders_that_the_studio_must_not_write_to(studio_folder: Path, folder: str) -> None:
    (studio_folder / "project" / ".git").mkdir(parents=True)
    with pytest.raises(InputError, match="--output"):
        Workspace(folder).check()
    with pytest.raises(InputError, match="--output"):
        run_studio([], port=0, folder=folder)
    Workspace("project/trained").check()
    Workspace("~/elsewhere").check()


def test_data_must_exist_and_the_folder_must_not_be_a_file(studio_folder: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        Workspace("trained", ["nothing.tsv"]).check()
    (studio_folder / "trained").write_text("")
    with pytest.raises(InputError, match="is a file"):
        Workspace("trained").check()


@pytest.mark.parametrize(
    "name",
    ["/", ".", "..", "~", "../x", "trained/../../x", "/tmp/x", "~/project/trained", "link/x", "\0", "~/x", "/etc"],
)
def test_outputs_must_be_inside_the_folder(studio_folder: Path, name: str) -> None:
    (studio_folder / "trained").mkdir()
    (studio_folder / "trained" / "link").symlink_to(studio_folder.parent)
    with pytest.raises(InputError):
        Workspace().output(name)


def test_names_of_outputs(studio_folder: Path) -> None:
    for name in (
        "mine",
        "trained/mine",
        "./trained/mine",
        str(studio_folder / "trained" / "mine"),
        "~/project/trained/mine",
    ):
        assert Workspace().output(name) == Path("trained/mine")
    assert Workspace("/srv/models").output("a/b") == Path("/srv/models/a/b")


def test_only_given_files_can_be_read(studio_folder: Path) -> None:
    (studio_folder / "trained").mkdir()
    (studio_folder / "trained" / "link.tsv").symlink_to(studio_folder.parent / "secret.tsv")
    (studio_folder / "films.tsv").write_text("")
    (studio_folder / "data").mkdir()
    given = Workspace("trained", ["films.tsv", "data"])
    for name in ("~/secret.tsv", "../secret.tsv", "/etc/passwd", "/dev/zero", "trained/../../secret.tsv", "..", "\0"):
        with pytest.raises(InputError):
            given.readable(name)
    # data/link.tsv does not exist: the link in trained/ counts as its target.
    assert given.readable("link.tsv") == studio_folder / "data" / "link.tsv"
    assert given.readable("films.tsv") == studio_folder / "films.tsv"
    assert given.readable("data/a.tsv") == given.readable(str(studio_folder / "data" / "a.tsv"))
    assert given.readable("new.tsv") == studio_folder / "trained" / "new.tsv"


def test_uploads_have_a_quota(studio_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Workspace()
    here.check_quota(10)
    (studio_folder / "trained" / "model").mkdir(parents=True)
    (studio_folder / "trained" / "model" / "weights").write_bytes(bytes(1000))  # part of a model, not an upload
    monkeypatch.setattr(workspace, "MAX_BYTES", 500)
    monkeypatch.setattr(workspace, "MAX_FILES", 2)
    here.check_quota(500)
    (studio_folder / "trained" / "a.tsv").write_bytes(bytes(300))
    here.check_quota(200)
    with pytest.raises(InputError, match="1 files of 300 bytes"):
        here.check_quota(201)
    (studio_folder / "trained" / "b.tsv").write_bytes(b"")
    with pytest.raises(InputError, match="2 files"):
        here.check_quota(0)
    order = {"task": "classify", "content": "a\tb\n", "name": "c.tsv"}
    with pytest.raises(InputError, match="2 files"):
        training.start_training(Studio(local_registry([])), order)
    assert sorted(os.listdir(studio_folder / "trained")) == ["a.tsv", "b.tsv", "model"]


@pytest.mark.parametrize("task", ["classify", "tag", "answer", "pair", "regress", "choose"])
def test_training_cannot_quote_a_file_outside(studio_folder: Path, task: str) -> None:
    with pytest.raises(InputError) as error:
        training.start_training(Studio(local_registry([])), {"task": task, "path": "~/secret.tsv"})
    assert "root" not in str(error.value) and "--data" in str(error.value)
    assert not (studio_folder / "trained").exists()


@pytest.mark.parametrize("output", ["/", ".", "~", "..", "/tmp/regard-elsewhere"])
def test_training_cannot_write_outside(studio_folder: Path, output: str) -> None:
    order = {"task": "classify", "content": "good\ta\nbad\tb\n", "output": output}
    with pytest.raises(InputError, match="not below trained"):
        training.start_training(Studio(local_registry([])), order)
    assert os.listdir(studio_folder) == []


def test_prediction_cannot_show_a_picture_outside(studio_folder: Path) -> None:
    from PIL import Image

    from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
    from regard.tasks.image_classification import ImageClassifier, ImageTask

    Image.new("RGB", (8, 8), (200, 0, 0)).save(studio_folder.parent / "red.png")
    (studio_folder / "trained").mkdir()
    Image.new("RGB", (8, 8), (200, 0, 0)).save(studio_folder / "trained" / "red.png")
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
        FineTunedModel(ImageTask(["a", "b"]), ImageClassifier(encoder).eval(), None, 0),
        studio_folder / "trained" / "looks",
    )
    studio = verb_host("trained/looks")
    studio.images = UploadedImages({})
    for path in ("../red.png", "trained/red.png"):
        with pytest.raises(InputError, match="this model reads images"):
            drain(run_verb(studio, "predict", {"model": "trained/looks", "source": path}))
    content = base64.b64encode((studio_folder / "trained" / "red.png").read_bytes()).decode()
    key = studio.images.add({"name": "red.png", "content": content}).image
    result = drain(run_verb(studio, "predict", {"model": "trained/looks", "source": key}))
    assert len(result.to_dict()["predictions"]) == 1 and " red.png" in str(result.page_data()["cli"])
