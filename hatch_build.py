"""Builds the page while the package is built, for wheels, source archives and editable installs alike.

Where that cannot be done the package is made without it: everything but the page works, and `regard studio` says what
to run.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        script = Path(self.root) / "web" / "build.py"
        if not script.is_file():
            return
        description = importlib.util.spec_from_file_location("regard_web_build", script)
        assert description is not None and description.loader is not None
        module = importlib.util.module_from_spec(description)
        description.loader.exec_module(module)
        try:
            module.build(quiet=True)
        except Exception as error:  # whatever it is, the rest of the package works without the page
            self.app.display_warning(f"The studio's page was not built: {error}")
