"""The model that Figure 1 shows if none is named. Does not import torch."""

from __future__ import annotations

from regard.files.json_files import read_json
from regard.known import DEFAULT_MODEL, builtin_folder, builtin_names


def default_figure_model() -> str:
    """A built-in translator that is a Transformer, which has both halves of the figure: one whose norms follow the
    sublayers, as in the paper, if there is one."""
    folders = {name: builtin_folder(name) for name in builtin_names()}
    translators = {name: folder for name, folder in folders.items() if (folder / "translate.json").is_file()}
    configs = {name: read_json(folder / "config.json") for name, folder in translators.items()}
    transformers = [name for name, config in configs.items() if "norm_first" in config]
    return min(transformers, key=lambda name: bool(configs[name]["norm_first"]), default=DEFAULT_MODEL)
