"""A picture uploaded to the studio and processed by a Vision Transformer."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
import torch
from PIL import Image
from starlette.applications import Starlette
from starlette.testclient import TestClient

import regard
from regard.inference.load_model import load_model
from regard.interpret.attention.recording import record_attention
from regard.interpret.images import read_image
from regard.models import Vit, VitConfig
from regard.server.models.images import MAX_IMAGE_BYTES, MAX_IMAGES
from tests.server.local import local_registry

pytest.importorskip("playwright")
from playwright.sync_api import Browser, expect

from tests.inference.folders import tiny_clip
from tests.server.conftest import BEARER, create_app, download, point_at, serious_findings, watched


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("vit")
    model = Vit(
        VitConfig(
            hidden_size=16,
            num_hidden_layers=3,
            num_attention_heads=2,
            intermediate_size=16,
            image_size=(16, 24),
            patch_size=(8, 8),
            num_labels=2,
        )
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    regard.save(model, folder)
    return str(folder)


@pytest.fixture(scope="module")
def cat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / "my cat.png"
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def client(vit: str, tiny_bert_folder: Path) -> TestClient:
    registry = local_registry([vit, str(tiny_bert_folder)])
    return TestClient(create_app(registry), base_url="http://127.0.0.1", headers=BEARER)


def send(client: TestClient, content: bytes, name: str = "a.png") -> Any:
    return client.post("/api/image", json={"name": name, "content": base64.b64encode(content).decode()})


def colored_png(number: int) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (8, 8), (number, 0, 0)).save(content, "PNG")
    return content.getvalue()


def test_maps_equal_the_librarys(client: TestClient, vit: str, cat: Path) -> None:
    models = client.get("/api/models").json()["models"]
    assert ["image" in one["capabilities"] for one in models] == [True, False]
    image = send(client, cat.read_bytes(), "/home/me/my cat.png").json()["image"]
    payload = client.post("/v1/look/view", json={"model": vit, "image": image}).json()
    network, reader = load_model(vit)
    found = record_attention(network, reader, image=read_image(cat))
    weights = np.frombuffer(base64.b64decode(payload["maps"][0]["weights"]), np.uint8) / 255
    np.testing.assert_allclose(
        weights.reshape(found.maps[0].weights.shape), found.maps[0].weights, atol=0.5 / 255 + 1e-6
    )
    assert payload["grid"] == [2, 3] and payload["image"].startswith("data:image/png;base64,")
    assert "--image 'my cat.png'" in payload["cli"]


def test_an_uploaded_picture_is_compared_with_texts(cat: Path, tmp_path: Path) -> None:
    clip = str(tiny_clip(tmp_path))
    registry = local_registry([clip])
    client = TestClient(create_app(registry), base_url="http://127.0.0.1", headers=BEARER)
    image = send(client, cat.read_bytes(), "my cat.png").json()["image"]
    found = client.post("/v1/similarity", json={"model": clip, "image": image, "texts": ["a cat", "a dog"]}).json()
    expected = regard.similarity(cat, ["a cat", "a dog"], model=clip)
    assert found["texts"] == expected.to_dict()["texts"] and "/" not in found["image"]
    refused = client.post("/v1/similarity", json={"model": clip, "image": str(cat), "texts": ["a cat"]})
    assert refused.status_code == 422 and "expected an image that was sent" in refused.json()["error"]


def test_texts_about_a_picture_in_the_page(
    page_built: None, browser: Browser, axe: str, run_app: Callable[[Starlette], str], cat: Path, tmp_path: Path
) -> None:
    clip = str(tiny_clip(tmp_path))
    registry = local_registry([clip])
    texts = ["a photo of a cat", "a dog", "<b>nothing</b>"]
    with watched(browser) as page:
        page.goto(f"{run_app(create_app(registry))}/#similarity")
        page.locator("input[type=file]").set_input_files(cat)
        expect(page.get_by_label("Example image")).to_contain_text("my cat.png")
        page.get_by_label("Texts, one per line").fill("\n".join(texts))
        page.get_by_role("button", name="Show", exact=True).click()
        rows = page.locator(".similarity li")
        expect(rows).to_have_count(len(texts))
        expected = sorted(regard.similarity(cat, texts, model=clip).texts, key=lambda one: -one.probability)
        for number, one in enumerate(expected):
            expect(rows.nth(number)).to_contain_text(one.text)
            expect(rows.nth(number)).to_contain_text(f"{one.probability:.1%}, cosine {one.cosine:.3f}")
        expect(page.locator("h2.finding")).to_contain_text(expected[0].text)
        expect(page.get_by_alt_text("The image as the model reads it")).to_be_visible()
        assert serious_findings(page, axe) == []
        path = download(page, "HTML", tmp_path)
        path.rename(tmp_path / "page.html")
    with watched(browser) as alone:
        alone.goto((tmp_path / "page.html").as_uri())
        expect(alone.locator(".similarity li").first).to_contain_text(expected[0].text)


def test_unusable_pictures_are_errors(client: TestClient, vit: str, tiny_bert_folder: Path) -> None:
    refused = [
        (send(client, b"no image", "a.txt"), "a.txt is no image; expected a PNG or JPEG file"),
        (client.post("/api/image", json={"name": "a", "content": "%%%"}), "'content' is not base64"),
        (client.post("/api/image", json={"name": "a"}), "content is missing"),
        (
            send(client, b"\x89PNG" + bytes(MAX_IMAGE_BYTES + 1), "big.png"),
            f"big.png is too large; the studio accepts images of {MAX_IMAGE_BYTES:,}",
        ),
        (
            client.post("/v1/look/view", json={"model": vit, "text": "a"}),
            "image",
        ),
        (client.post("/v1/look/view", json={"model": vit, "image": f"{0:016x}/cat.png"}), "send 'cat.png' again"),
        (client.post("/v1/look/view", json={"model": vit, "image": 3}), "image is 3"),
        (client.post("/v1/look/view", json={"model": vit, "image": "/etc/hosts"}), "expected an image that was sent"),
    ]
    for response, message in refused:
        assert response.status_code == 422 and message in response.json()["error"]
    huge = send(client, bytes(9_100_000), "huge.png")
    assert huge.status_code == 413 and "the request is too large" in huge.json()["error"]


def test_only_the_latest_pictures_are_stored(client: TestClient, vit: str) -> None:
    names = [send(client, colored_png(number), f"{number}.png").json()["image"] for number in range(MAX_IMAGES + 1)]
    ask = lambda name: client.post("/v1/look/view", json={"model": vit, "image": name}).status_code  # noqa: E731
    assert [ask(name) for name in names] == [422] + [200] * MAX_IMAGES


def test_a_picture_can_be_chosen_and_its_patches_clicked(
    page_built: None,
    browser: Browser,
    run_app: Callable[[Starlette], str],
    vit: str,
    tiny_bert_folder: Path,
    cat: Path,
    tmp_path: Path,
) -> None:
    registry = local_registry([vit, str(tiny_bert_folder)])
    address = run_app(create_app(registry))
    with watched(browser) as page:
        page.goto(f"{address}/#attention?{urlencode({'model': vit})}")
        expect(page.locator("canvas.picture")).to_be_visible()  # an example image
        assert page.get_by_label("Text", exact=True).count() == 0
        page.locator("input[type=file]").set_input_files(cat)
        page.wait_for_selector(".export-panel")
        expect(page.get_by_label("Example image")).to_contain_text("my cat.png")
        page.get_by_role("button", name="Head 1").click()
        page.get_by_role("button", name="Layer above").click()
        point_at(page.locator("canvas.picture"), 0.5, 0.75, click=True)  # patch (2, 2)
        network, reader = load_model(vit)
        row = record_attention(network, reader, image=read_image(cat)).maps[0].weights[1, 1, 5]
        rows = page.locator(".weights-panel tbody tr").all()
        displayed = {int(one.get_attribute("data-index") or -1): float(one.locator("td").inner_text()) for one in rows}
        assert len(displayed) == 7 and all(abs(displayed[index] - row[index]) < 0.003 for index in displayed)
        download(page, "HTML", tmp_path).rename(tmp_path / "cat.html")
        page.locator("select[name=model]").select_option(str(tiny_bert_folder))
        expect(page.get_by_label("Text", exact=True)).to_be_visible()
        page.get_by_role("button", name="Show", exact=True).click()
        expect(page.locator(".tokens.row button").first).to_have_text("[CLS]")
    with watched(browser) as alone:
        alone.goto((tmp_path / "cat.html").as_uri())
        expect(alone.locator("canvas.picture")).to_be_visible()
    page = browser.new_page()
    page.goto(f"{address}/#attention?{urlencode({'model': vit})}")
    page.locator("input[type=file]").set_input_files(
        {"name": "a.png", "mimeType": "image/png", "buffer": b"no picture"}
    )
    expect(page.get_by_role("alert")).to_have_text("a.png is no image; expected a PNG or JPEG file")
    page.close()
