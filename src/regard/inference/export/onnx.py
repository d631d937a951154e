"""Writes a model as an ONNX file, and runs the file in onnxruntime. The packages are imported when they are needed."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim

from regard.errors import InputError, RegardError
from regard.inference.export.traceable import TraceableModel

OPSET = 20  # the first with GELU as an operator
LOGGERS = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")


def require_onnx() -> Any:
    """onnxruntime; raises InputError if it or a package that writes ONNX files is missing."""
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError:
        raise InputError(
            "ONNX needs onnx, onnxscript and onnxruntime, which are not all installed: pip install 'regard[onnx]'"
        ) from None
    return onnxruntime


def write_onnx(model: TraceableModel, path: Path, *, max_length: int) -> None:
    """Write a network in evaluation mode; the file reads batches of any size and sequences up to `max_length`.

    Weights of more than 2 GB go to a second file beside it.
    """
    axes = {name: Dim(name, max=max_length if name == "sequence_length" else None) for name in model.axes}
    shapes = {name: {index: axes[axis] for index, axis in enumerate(model.axes)} for name in model.inputs}
    with _quiet():
        try:
            program = torch.onnx.export(
                model.network.eval(),
                kwargs=model.inputs,
                input_names=list(model.inputs),
                output_names=list(model.outputs),
                dynamic_shapes=shapes,
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise RegardError(f"torch {torch.__version__} cannot convert this model to ONNX: {reason}") from error
        assert program is not None
        for node in program.model.graph.all_nodes():  # the lines of source code that it comes from
            node.metadata_props.clear()
        program.save(path)


def run_onnx(path: Path, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The outputs of an ONNX file on the CPU, by name."""
    onnxruntime = require_onnx()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    outputs = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    names = [output.name for output in session.get_outputs()]
    return {name: torch.from_numpy(array) for name, array in zip(names, outputs, strict=True)}


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings and log messages about the conversion, which are for its developers."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
