"""A limit for the compiled kernels that oneDNN keeps in memory."""

from __future__ import annotations

import os

CAPACITY = 16  # kernels: those of the last four sizes of batches
VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")  # oneDNN's own cache, and that of PyTorch


def limit_kernel_cache() -> None:
    """Limit the cache in this process and those that it starts; variables that are set stay.

    oneDNN compiles its kernels for a number of rows and keeps 1,024 of them, of half a megabyte each. Compiling one
    again takes about 0.2 ms. Must be called before the first product of torch, so only programs of Regard call it.
    """
    for name in VARIABLES:
        os.environ.setdefault(name, str(CAPACITY))
