"""Adds the built-in models of this distribution, which are folders in the source tree of Regard."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ModelsBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        tree = Path(self.root).parents[1]
        if self.target_name != "wheel" or not (tree / "hatch_build.py").is_file():
            raise RuntimeError("build a wheel, in the source tree of Regard: python -m build --wheel packages/models")
        description = importlib.util.spec_from_file_location("regard_build", tree / "hatch_build.py")
        assert description is not None and description.loader is not None
        module = importlib.util.module_from_spec(description)
        description.loader.exec_module(module)
        for folder in module.builtin_folders(tree, second_package=True):
            build_data["force_include"][str(folder)] = f"regard_models/{folder.name}"
