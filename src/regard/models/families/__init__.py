"""The model families, one module each: capabilities, checkpoints, file format. Importing them does not import torch."""
