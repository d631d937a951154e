"""Predictions of fine-tuned models: the input row by row, and one result row for each."""
