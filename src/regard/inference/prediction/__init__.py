"""Bulk prediction: a file of inputs to a table of predictions."""
