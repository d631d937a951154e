"""Data: from files to batches. The package itself imports nothing, so that reading text does not import torch."""
