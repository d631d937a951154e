"""Weights on the disk: safetensors in and out, and the only home of other software's names."""
