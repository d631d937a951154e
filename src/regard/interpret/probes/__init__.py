"""Experiments on frozen layers: which layer is best for a task, and the lecture's features with logistic regression.

Knows examples and loaded models; knows nothing of files or the command line. Reading order: combinations, states,
heads, fitting, subjects, layers; walk.
"""
