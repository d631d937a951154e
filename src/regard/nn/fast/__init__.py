"""Kernels and shortcuts that only save time. Without this folder every model computes the same results, more slowly."""
