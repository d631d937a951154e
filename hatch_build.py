"""Builds the page while the package is built, for wheels, source archives and editable installs alike, and adds the
built-in models of this distribution.

Where the page cannot be built the package is made without it: everything but the page works, and `regard studio` says
what to run. Built-in models that `regard.known` assigns to the second package are in regard-models (packages/models),
because PyPI accepts files of up to 100 MB. An editable install finds all of them in the source tree.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PackageBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        target = "src/regard/builtin" if self.target_name == "sdist" else "regard/builtin"
        if version != "editable":
            for folder in builtin_folders(root, second_package=False):
                build_data["force_include"][str(folder)] = f"{target}/{folder.name}"
        script = root / "web" / "build.py"
        if not script.is_file():
            return
        try:
            load_script(script).build(quiet=True)
        except Exception as error:  # whatever it is, the rest of the package works without the page
            self.app.display_warning(f"The studio's page was not built: {error}")


def builtin_folders(root: Path, *, second_package: bool) -> list[Path]:
    """The folders of the built-in models of one of the two distributions."""
    known = load_script(root / "src" / "regard" / "known.py").BUILT_IN
    folders = sorted((root / "src" / "regard" / "builtin").iterdir())
    return [folder for folder in folders if folder.is_dir() and known[folder.name].second_package == second_package]


def load_script(path: Path) -> Any:
    """Import a file by its path."""
    name = f"regard_build_{path.stem}"
    description = importlib.util.spec_from_file_location(name, path)
    assert description is not None and description.loader is not None
    module = importlib.util.module_from_spec(description)
    sys.modules[name] = module  # dataclasses look their module up
    description.loader.exec_module(module)
    return module
