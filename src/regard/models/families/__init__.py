"""The model families, one file each: capabilities, checkpoints, file format. Importing them does not import torch."""
