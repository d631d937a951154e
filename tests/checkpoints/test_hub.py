"""Downloads from a hub on 127.0.0.1: which files are transferred, what the cache serves, and error messages."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import save

from regard.checkpoints.files import read_tensors
from regard.checkpoints.hub import fetch, remote_weights
from regard.errors import InputError, RegardError

if TYPE_CHECKING:
    from tests.checkpoints.conftest import FakeHub

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4)}
WEIGHTS = save(TENSORS, metadata={"format": "pt"})


def pickled(tmp_path: Path) -> bytes:
    torch.save(TENSORS, tmp_path / "saved.bin")
    return (tmp_path / "saved.bin").read_bytes()


@pytest.fixture
def model(fake_hub: FakeHub) -> FakeHub:
    fake_hub.models["user/tiny"] = {
        "config.json": b'{"model_type": "bert"}',
        "vocab.txt": b"[PAD]\n",
        "tokenizer_config.json": b"{}",
        "1_Pooling/config.json": b'{"pooling_mode_mean_tokens": true}',
        "model.safetensors": WEIGHTS,
        "README.md": b"# tiny",
        "onnx/model.onnx": b"other format",
        "tf_model.h5": b"other format",
        "flax_model.msgpack": b"other format",
    }
    return fake_hub


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_only_the_needed_files_are_downloaded(model: FakeHub) -> None:
    folder = fetch("user/tiny")
    wanted = {"config.json", "vocab.txt", "tokenizer_config.json", "1_Pooling/config.json", "model.safetensors"}
    wanted.add("README.md")  # states the language and the license
    assert files_in(folder) == wanted
    assert set(model.transferred()) == wanted
    assert torch.equal(read_tensors(folder)["a"], TENSORS["a"])


def test_a_name_without_a_user(model: FakeHub) -> None:
    model.models["gpt2"] = model.models["tiny-base"] = model.models["user/tiny"]
    assert (fetch("gpt2") / "model.safetensors").read_bytes() == WEIGHTS
    model.log.clear()
    with pytest.raises(InputError, match=r"'tiny-base' is neither a folder .*'owner/model'"):
        fetch("tiny-base")
    with pytest.raises(InputError, match="did you mean 'bert-base-uncased'"):
        fetch("bert-base-uncasd")
    assert model.log == [], "a request was sent"


LogCapture = pytest.LogCaptureFixture


def test_a_download_is_announced_before_it_begins(
    model: FakeHub, caplog: LogCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    original, before = huggingface_hub.snapshot_download, []

    def downloading(*arguments: object, **options: object) -> object:
        before.append(len(caplog.messages))
        return original(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(huggingface_hub, "snapshot_download", downloading)
    wanted = ["config.json", "vocab.txt", "tokenizer_config.json", "1_Pooling/config.json", "model.safetensors"]
    wanted.append("README.md")
    files = model.models["user/tiny"]
    files["model.safetensors"] = WEIGHTS + b"\0" * 2_000_000
    total = sum(len(files[name]) for name in wanted)
    fetch("user/tiny")
    (message,) = caplog.messages
    assert message.startswith(
        f"user/tiny: downloading {', '.join(wanted)} ({total / 1e6:.1f} MB) from {model.url} into "
    )
    assert before[0] == 1, "before the first file"
    fetch("user/tiny")
    assert len(caplog.messages) == 1, "nothing is downloaded, so nothing is announced"
    files["vocab.txt"] = b"[PAD]\n[UNK]\n"
    fetch("user/tiny")
    assert caplog.messages[1].startswith("user/tiny: downloading vocab.txt (0 kB) from ")


def test_announcement_of_shards_and_of_unknown_sizes(model: FakeHub, caplog: LogCapture) -> None:
    files = model.models["user/tiny"]
    del files["model.safetensors"]
    where = {"a": "a.safetensors", "b": "b.safetensors"}
    files["model.safetensors.index.json"] = json.dumps({"weight_map": where}).encode()
    files |= {where[name]: save({name: tensor}) for name, tensor in TENSORS.items()}
    model.tells_sizes = False
    fetch("user/tiny")
    first, second = caplog.messages
    assert "model.safetensors.index.json (unknown size)" in first
    assert "downloading a.safetensors, b.safetensors (unknown size)" in second
    model.models["gpt2"] = {"config.json": b"{}", "model.safetensors": WEIGHTS}
    fetch("gpt2")
    assert "config.json, model.safetensors (about 497.8 MB as float32)" in caplog.messages[-1]


def test_the_command_line_shows_the_announcement_and_the_bar(
    model: FakeHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the library's progress bar returns to the start of its line."""
    from regard.cli.app import run

    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's
    # Other tests may have disabled the bars, for the whole process.
    monkeypatch.setitem(sys.modules["huggingface_hub.utils.tqdm"].__dict__, "progress_bar_states", {})
    assert run(["fill", "the _", "--model", "user/tiny"]) == 2  # the config is incomplete
    error = capsys.readouterr().err
    assert error.index("user/tiny: downloading config.json, ") < error.index("Fetching")
    assert "\rFetching" in error and r"\rFetching" not in error


def test_the_second_call_transfers_no_file(model: FakeHub) -> None:
    first = fetch("user/tiny")
    model.log.clear()
    assert fetch("user/tiny") == first
    assert model.transferred() == []
    assert [method for method, _ in model.log] == ["GET", "GET"], "two questions about the revision, no more"


def test_a_new_commit_is_noticed_and_only_the_change_is_transferred(model: FakeHub) -> None:
    first = fetch("user/tiny")
    model.log.clear()
    model.models["user/tiny"]["vocab.txt"] = b"[PAD]\n[UNK]\n"
    second = fetch("user/tiny")
    assert second != first and (second / "vocab.txt").read_bytes() == b"[PAD]\n[UNK]\n"
    assert model.transferred() == ["vocab.txt"]
    assert (fetch("user/tiny", revision=second.name) / "vocab.txt").read_bytes() == b"[PAD]\n[UNK]\n"


def test_a_branch_that_moves_between_two_requests(model: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    original = huggingface_hub.snapshot_download
    moves = [b"moved"]

    def download_after_move(*arguments: object, **options: object) -> object:
        if moves:
            del model.models["user/tiny"]["model.safetensors"]
            model.models["user/tiny"]["pytorch_model.bin"] = moves.pop()
        return original(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download_after_move)
    assert (fetch("user/tiny") / "pytorch_model.bin").read_bytes() == b"moved"


def test_with_both_formats_only_safetensors_are_downloaded(model: FakeHub) -> None:
    model.models["user/tiny"] |= {"pytorch_model.bin": b"never requested", "pytorch_model.bin.index.json": b"{}"}
    assert not any("pytorch_model" in name for name in files_in(fetch("user/tiny")))
    assert not any("pytorch_model" in path for _, path in model.log)


def test_pickles_are_downloaded_if_there_is_nothing_else(model: FakeHub, tmp_path: Path) -> None:
    del model.models["user/tiny"]["model.safetensors"]
    model.models["user/tiny"]["pytorch_model.bin"] = pickled(tmp_path)
    assert torch.equal(read_tensors(fetch("user/tiny"))["b"], TENSORS["b"])


def test_the_shards_named_by_the_index_are_downloaded(model: FakeHub) -> None:
    files = model.models["user/tiny"]
    del files["model.safetensors"]
    where = {name: f"part_{name}.safetensors" for name in TENSORS}
    files["model.safetensors.index.json"] = json.dumps({"weight_map": where}).encode()
    for name, tensor in TENSORS.items():
        files[where[name]] = save({name: tensor})
    files["consolidated.safetensors"] = WEIGHTS
    folder = fetch("user/tiny")
    assert {name for name in files_in(folder) if name.endswith(".safetensors")} == set(where.values())
    assert (folder / "part_a.safetensors").is_symlink(), "the cache consists of links, which are followed"
    assert {name: tensor.tolist() for name, tensor in read_tensors(folder).items()} == {
        name: tensor.tolist() for name, tensor in TENSORS.items()
    }
    (folder / "part_b.safetensors").unlink()
    with pytest.raises(RegardError, match="no complete copy"):
        fetch("user/tiny", offline=True)
    del files["part_b.safetensors"]
    with pytest.raises(InputError, match=r"lacks files .* model\.safetensors\.index\.json"):
        fetch("user/tiny")


@pytest.fixture
def modular(model: FakeHub) -> FakeHub:
    """A repository with modules in folders, with routes inside one of them, and with much that is not needed."""
    files = model.models["user/tiny"]
    del files["1_Pooling/config.json"]
    paths = ["", "1_Pooling", "2_Pool", "3_Dense", "4_Normalize", "5_Router"]
    modules = [{"idx": i, "path": path, "type": path[2:] or "Transformer"} for i, path in enumerate(paths)]
    files["modules.json"] = json.dumps(modules).encode()
    routes = {"types": {"query_0_Static": "StaticEmbedding", "document_0_Dense": "Dense"}}
    files |= {
        "1_Pooling/config.json": b"{}",
        "2_Pool/config.json": b"{}",
        "3_Dense/config.json": b"{}",
        "3_Dense/model.safetensors": b"those of Dense",
        "3_Dense/pytorch_model.bin": b"never requested",
        "5_Router/router_config.json": json.dumps(routes).encode(),
        "5_Router/query_0_Static/tokenizer.json": b"{}",
        "5_Router/query_0_Static/model.safetensors": b"those of a route",
        "5_Router/document_0_Dense/config.json": b"{}",
        "5_Router/document_0_Dense/pytorch_model.bin": b"the only one",
        "added_tokens.json": b"{}",
        "chat_template.jinja": b"",
    }
    unused = [
        "onnx/config.json",
        "openvino/model.bin",
        "tiny-q4.gguf",
        "checkpoint-5/model.safetensors",
        "7_Other/config.json",
    ]
    files |= dict.fromkeys([*unused, "optimizer.pt", "training_args.bin", "pytorch_model.bin"], b"never requested")
    return model


def test_the_files_of_every_module_are_downloaded(modular: FakeHub) -> None:
    from regard.checkpoints.hub import model_files

    folder = fetch("user/tiny")
    files = modular.models["user/tiny"]
    unused = {name for name, data in files.items() if data in (b"never requested", b"other format")}
    assert files_in(folder) == set(files) - unused == set(model_files(folder))
    assert modular.transferred()[-1] == "model.safetensors", "the weights of the model complete a copy"
    modular.log.clear()
    assert fetch("user/tiny") == folder and modular.transferred() == []
    assert fetch("user/tiny", offline=True) == folder
    (folder / "3_Dense" / "config.json").unlink()
    with pytest.raises(RegardError, match="no complete copy"):
        fetch("user/tiny", offline=True)


def test_a_model_in_the_folder_of_its_module(modular: FakeHub) -> None:
    """Older repositories of sentence-transformers have the model in 0_Transformer."""
    files = modular.models["user/tiny"]
    files["modules.json"] = b'[{"path": "0_Transformer", "type": "Transformer"}]'
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        files[f"0_Transformer/{name}"] = files.pop(name)
    del files["pytorch_model.bin"]
    folder = fetch("user/tiny")
    assert files_in(folder / "0_Transformer") == {"config.json", "model.safetensors", "vocab.txt"}
    assert fetch("user/tiny", offline=True) == folder


@pytest.mark.parametrize("place", ["", ".", "0_StaticEmbedding"])
def test_static_embeddings(place: str, model: FakeHub) -> None:
    """They have no config.json, or that of model2vec, whose modules.json calls the folder itself "."."""
    inside = f"{place}/" if place not in ("", ".") else ""
    modules = [{"path": place, "type": "sentence_transformers.models.StaticEmbedding"}]
    names = {f"{inside}model.safetensors": WEIGHTS, f"{inside}tokenizer.json": b"{}"}
    model.models["user/static"] = {"modules.json": json.dumps(modules).encode(), "onnx/x.onnx": b"", **names}
    folder = fetch("user/static")
    assert files_in(folder / inside) >= {"model.safetensors", "tokenizer.json"}
    assert not (folder / "onnx").exists()
    assert fetch("user/static", offline=True) == folder


@pytest.mark.parametrize("path", ["../x", "/etc", "*", "a/../b", "a" * 300, "é", "x y"])
def test_modules_in_other_folders_are_refused(model: FakeHub, path: str) -> None:
    model.models["user/tiny"]["modules.json"] = json.dumps([{"path": path}]).encode()
    with pytest.raises(InputError, match="refused: 1 modules, one in"):
        fetch("user/tiny")


def test_an_adapter_is_downloaded_with_its_weights(model: FakeHub) -> None:
    model.models["user/adapter"] = {"adapter_config.json": b"{}", "adapter_model.safetensors": WEIGHTS, "x.bin": b""}
    folder = fetch("user/adapter")
    assert files_in(folder) == {"adapter_config.json", "adapter_model.safetensors"}
    assert fetch("user/adapter", offline=True) == folder


def test_an_index_that_points_outside_the_folder_is_refused(model: FakeHub) -> None:
    files = model.models["user/tiny"]
    del files["model.safetensors"]
    files["model.safetensors.index.json"] = b'{"weight_map": {"a": "../../x.safetensors"}}'
    with pytest.raises(InputError, match="refused: tensor 'a'"):
        fetch("user/tiny")


@pytest.mark.parametrize("lost", ["config.json", "model.safetensors"])
def test_a_repository_without_a_model(model: FakeHub, lost: str) -> None:
    del model.models["user/tiny"][lost]
    with pytest.raises(InputError, match=r"the hub has no .* found: .*README"):
        fetch("user/tiny")


@pytest.mark.parametrize("name", ["", "a/b/c", "../x", "-x", "a b", "x.git", "/etc/passwd", "a--b", "./model", "é/x"])
def test_invalid_names(model: FakeHub, name: str) -> None:
    with pytest.raises(InputError, match="is not the name of a model on the hub"):
        fetch(name)
    assert model.log == []


@pytest.mark.parametrize("revision", ["", "../x", "/etc", "a b", "-x", "a/../b"])
def test_invalid_revisions(model: FakeHub, revision: str) -> None:
    with pytest.raises(InputError, match="is not a revision"):
        fetch("user/tiny", revision=revision)
    assert model.log == []


def test_a_revision_in_the_name(model: FakeHub) -> None:
    model.tags["user/tiny"] = {"v1": {"config.json": b"{}", "model.safetensors": WEIGHTS, "vocab.txt": b"old\n"}}
    tag = fetch("user/tiny@v1")
    assert (tag / "vocab.txt").read_text() == "old\n" and tag.name == model.commit("user/tiny", "v1")
    assert fetch("user/tiny", revision="v1") == fetch(f"user/tiny@{tag.name}") == tag
    assert fetch("user/tiny@v1", revision="v1", offline=True) == tag
    assert fetch("user/tiny").name == model.commit("user/tiny")
    with pytest.raises(InputError, match="the revision is also 'v2'"):
        fetch("user/tiny@v1", revision="v2")
    with pytest.raises(InputError, match="no revision 'v9'"):
        fetch("user/tiny@v9")
    with pytest.raises(InputError, match="is not a revision"):
        fetch("user/tiny@")


def test_a_redirect_to_another_path(model: FakeHub) -> None:
    model.redirects = True
    assert torch.equal(read_tensors(fetch("user/tiny"))["a"], TENSORS["a"])
    assert ("GET", "/cdn/user/tiny/resolve/" + model.commit("user/tiny") + "/model.safetensors") in model.log


def test_too_many_requests(model: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    folder = fetch("user/tiny")
    model.limited = 10**6
    assert fetch("user/tiny") == folder, "the cache serves"
    with pytest.raises(RegardError, match="429, too many requests: wait"):
        fetch("user/other")
    model.limited = 1
    assert fetch("user/tiny") == folder


@pytest.mark.parametrize("plain", [False, True])
def test_missing_model(model: FakeHub, plain: bool) -> None:
    model.plain_errors = plain
    with pytest.raises(InputError, match=r"user/tinny: no such model on the hub .* private, and no such folder"):
        fetch("user/tinny")


def test_missing_revision_and_gated_model(model: FakeHub) -> None:
    with pytest.raises(InputError, match="no revision 'v9' on the hub"):
        fetch("user/tiny", revision="v9")
    model.gated.add("user/tiny")
    with pytest.raises(InputError, match="accept its terms"):
        fetch("user/tiny")
    model.gated.clear()
    model.login_required.add("user/tiny")
    with pytest.raises(InputError, match="log in"):
        fetch("user/tiny")


def test_an_interrupted_transfer_is_resumed(model: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 16)
    model.cuts["model.safetensors"] = 1
    folder = fetch("user/tiny")
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert model.transferred().count("model.safetensors") == 2
    assert [one for path, one in model.ranges if path.endswith("model.safetensors")] == [f"bytes={len(WEIGHTS) // 2}-"]


def test_a_transfer_that_always_fails_leaves_no_model(
    model: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    model.cuts["model.safetensors"] = 10**6
    with pytest.raises(RegardError, match="partial downloads are not used") as caught:
        fetch("user/tiny")
    assert not isinstance(caught.value, InputError)
    with pytest.raises(RegardError, match="no complete copy"):
        fetch("user/tiny", offline=True)
    cache = tmp_path / "hub"
    assert not list(cache.rglob("*.incomplete")) and not list(cache.rglob("model.safetensors"))
    model.cuts.clear()
    assert (fetch("user/tiny") / "model.safetensors").read_bytes() == WEIGHTS


def test_a_small_file_that_always_fails_leaves_no_model(model: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    model.cuts["vocab.txt"] = 10**6
    with pytest.raises(RegardError, match="could not be fetched"):
        fetch("user/tiny")
    with pytest.raises(RegardError, match="no complete copy"):
        fetch("user/tiny", offline=True)


@pytest.mark.parametrize("trouble", ["refused", "503"])
def test_unreachable_hub(model: FakeHub, monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
    def break_it() -> None:
        model.down = trouble == "503"
        if trouble == "refused":
            monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")

    folder = fetch("user/tiny")
    break_it()
    assert fetch("user/tiny") == folder, "a complete copy in the cache serves"
    with pytest.raises(RegardError, match=r"user/other: could not be fetched .* no such folder") as caught:
        fetch("user/other")
    assert not isinstance(caught.value, InputError)


def test_offline_mode_sends_no_requests(model: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fetch("user/tiny")
    model.log.clear()
    assert fetch("user/tiny", offline=True) == folder
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fetch("user/tiny") == folder
    with pytest.raises(RegardError, match=r"user/other: no complete copy .* offline mode"):
        fetch("user/other")
    assert model.log == []


def test_the_environment_and_the_command_in_the_message(model: FakeHub, tmp_path: Path) -> None:
    """Runs in separate processes because the library reads HF_HOME when it is imported."""
    with pytest.raises(RegardError) as caught:
        fetch("user/tiny", revision="main", offline=True)
    assert str(caught.value).endswith("HF_HUB_OFFLINE=0 regard download user/tiny") and model.log == []
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": model.url, "NO_PROXY": "127.0.0.1"}

    def run(script: str, *, offline: str) -> subprocess.CompletedProcess[str]:
        options = {"env": environment | {"HF_HUB_OFFLINE": offline}, "capture_output": True, "text": True}
        return subprocess.run([sys.executable, "-c", script], check=False, timeout=200, **options)

    obeyed = run("from regard.cli.app import run; run(['download', 'user/tiny'])", offline="0")
    assert obeyed.returncode == 0, obeyed.stderr
    assert "Fetching" not in obeyed.stdout and "Fetching" in obeyed.stderr, "progress goes to standard error"
    assert list((tmp_path / "home" / "hub").rglob("model.safetensors"))
    model.log.clear()
    hit = run(
        "import sys, regard.checkpoints.hub as hub; "
        "assert 'huggingface_hub' not in sys.modules; hub.fetch('user/tiny')",
        offline="1",
    )
    assert hit.returncode == 0, hit.stderr
    assert model.log == []


def test_outlines_of_every_type(model: FakeHub) -> None:
    """What the header says is what the file has."""
    types = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
    types += (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    tensors = {str(one): torch.zeros(2, number + 1).to(one) for number, one in enumerate(types)}
    model.models["user/tiny"]["model.safetensors"] = save(tensors)
    folder = fetch("user/tiny", weights=False)
    remote = remote_weights(folder)
    assert remote is not None and remote.outlines is not None
    found = remote.outlines[folder]
    assert {name: (one.dtype, one.shape) for name, one in found.items()} == {
        name: (one.dtype, one.shape) for name, one in tensors.items()
    }
    assert fetch("user/tiny") == folder and remote_weights(folder) is None


def test_looking_at_a_model_keeps_the_complete_copy(model: FakeHub) -> None:
    folder = fetch("user/tiny")
    model.models["user/tiny"]["model.safetensors"] = save({"a": torch.ones(3)})
    assert fetch("user/tiny", weights=False) != folder
    assert fetch("user/tiny", offline=True) == folder
