"""`regard.widget(result)`: the view of a result as a Jupyter widget, whose selection Python reads and sets.

The page runs in a frame of its own, offline. It reports its height and what is selected in it, and follows a selection
that Python sets. Needs anywidget, which is imported when a widget is made.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from regard.errors import InputError
from regard.render.bundle import page
from regard.render.result import Result

MESSAGE = (
    "a widget needs anywidget, which is not installed: pip install 'regard[jupyter]'; without it, a result at the end "
    "of a cell shows the same view"
)
MODULE = """
function render({ model, el }) {
  const frame = document.createElement("iframe");
  frame.sandbox = "allow-scripts allow-downloads";
  frame.title = "Regard";
  frame.style.cssText = `width: 100%; height: ${model.get("height")}px; border: 1px solid #d0d7de`;
  const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
  let reported = null;
  const receive = ({ source, data }) => {
    if (source !== frame.contentWindow || !data || data.regard !== "frame" || !data.route) return;
    reported = data.route.parameters;
    if (same(reported, model.get("selection"))) return;
    model.set("selection", reported);
    model.save_changes();
  };
  const select = () => {
    if (same(reported, model.get("selection"))) return;
    frame.contentWindow.postMessage({ regard: "select", parameters: model.get("selection") }, "*");
  };
  window.addEventListener("message", receive);
  model.on("change:selection", select);
  frame.srcdoc = model.get("html");
  el.append(frame);
  return () => {
    window.removeEventListener("message", receive);
    model.off("change:selection", select);
  };
}
export default { render };
"""


def widget(result: Result, *, height: int = 640) -> Any:
    """The view of a result as a widget of `height` pixels.

    `selection` holds what is selected in the view, by the names of the page's address: {"layer": "5", "heads": "2"}.
    It changes when the user selects something else, which `observe` reports, and setting it changes the view.
    """
    if not isinstance(result, Result):
        raise InputError(f"expected a result, such as that of regard.look; got {type(result).__name__}")
    return _widget_class()(html=page(result.page_data(), title=f"Regard: {result.page_view}"), height=height)


@cache
def _widget_class() -> Any:
    try:
        import anywidget  # type: ignore[import-not-found,import-untyped,unused-ignore]
        import traitlets  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise InputError(MESSAGE) from None

    class ResultWidget(anywidget.AnyWidget):  # type: ignore[misc,unused-ignore]
        _esm = MODULE
        html = traitlets.Unicode("").tag(sync=True)
        height = traitlets.Int(640).tag(sync=True)
        selection = traitlets.Dict({}).tag(sync=True)

    return ResultWidget
