"""Results in Jupyter: every view in a frame of its own, offline; and the widget, with a stand-in for anywidget."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import regard
from regard.errors import InputError
from regard.render import widget as widgets
from regard.render.result import Result
from tests.verbs.examples import EXAMPLES
from tests.verbs.test_interfaces import NAMES, fill_placeholders
from tests.verbs.test_interfaces import placeholders as placeholders

pytestmark = pytest.mark.usefixtures("page_built")
VIEWS = ("look", "lens", "activations", "compare", "senses", "map", "heads", "ablate", "figure", "features", "search")


@pytest.mark.long
def test_every_view_opens_in_a_notebook(browser: Any, placeholders: dict[str, str]) -> None:
    page = browser.new_page()
    messages: list[str] = []
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: messages.append(request.url) if request.url.startswith("http") else None)
    for name in VIEWS:
        result: Result = getattr(regard, NAMES[name])(**fill_placeholders(EXAMPLES[name].good, placeholders))
        page.set_content(result._repr_html_())
        frame = page.frame_locator("iframe")
        frame.locator("main.result > *").first.wait_for()
        assert frame.locator(".error").count() == 0, name
    page.close()
    assert messages == []


def test_a_result_without_a_view_shows_its_text(placeholders: dict[str, str]) -> None:
    without_candidates = regard.generate("the film", model=placeholders["GPT"], max_new_tokens=2)
    assert without_candidates._repr_html_().startswith("<pre>")
    with_candidates = regard.generate("the film", model=placeholders["GPT"], max_new_tokens=2, candidates=True)
    assert with_candidates._repr_html_().startswith("<iframe")


class StandIn:
    """What the widget uses of anywidget.AnyWidget and of traitlets: attributes with defaults."""

    def __init__(self, **values: Any) -> None:
        vars(self).update({"selection": {}, **values})


@pytest.fixture
def anywidget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    trait = SimpleNamespace(tag=lambda **_: None)
    kinds = SimpleNamespace(**dict.fromkeys(("Unicode", "Int", "Dict"), lambda _: trait))
    monkeypatch.setitem(sys.modules, "anywidget", SimpleNamespace(AnyWidget=StandIn))
    monkeypatch.setitem(sys.modules, "traitlets", kinds)
    widgets._widget_class.cache_clear()
    yield
    widgets._widget_class.cache_clear()


def test_the_widget_reports_and_follows_the_selection(
    browser: Any, anywidget: None, placeholders: dict[str, str]
) -> None:
    made = regard.widget(regard.look("the film was good", model=placeholders["MODEL"]), height=500)
    page = browser.new_page()
    page.set_content("<div id='cell'></div>")
    page.evaluate(
        """async ([code, values]) => {
            const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
            const { default: module } = await import(address);
            const listeners = [];
            window.model = {
              get: (name) => values[name], set: (name, value) => (values[name] = value),
              save_changes: () => (window.saved = { ...values.selection }),
              on: (_, listener) => listeners.push(listener), off: () => undefined,
              change: (value) => { values.selection = value; listeners.forEach((one) => one()); },
            };
            module.render({ model: window.model, el: document.getElementById("cell") });
        }""",
        [made._esm, {"html": made.html, "height": made.height, "selection": {}}],
    )
    frame = page.frame_locator("iframe")
    frame.get_by_role("button", name="Head 2").click()
    page.wait_for_function("window.saved && window.saved.heads === '2'")
    page.evaluate("window.model.change({ heads: '1', layer: '2' })")
    frame.locator("button[aria-label='Head 1'][aria-pressed=true]").wait_for()
    assert page.locator("iframe").evaluate("frame => frame.style.height") == "500px"
    page.close()


def test_a_widget_needs_anywidget_and_a_result(monkeypatch: pytest.MonkeyPatch, placeholders: dict[str, str]) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    widgets._widget_class.cache_clear()
    with pytest.raises(InputError, match=r"pip install 'regard\[jupyter\]'"):
        regard.widget(regard.look("the film", model=placeholders["MODEL"]))
    with pytest.raises(InputError, match="expected a result"):
        regard.widget(json.loads("[]"))
