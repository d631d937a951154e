"""Kernels and shortcuts that only save time: without this folder every model gives the same results, more slowly."""
