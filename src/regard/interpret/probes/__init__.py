"""Probing classifiers on frozen layers: which layer is best for a task, and the feature-extraction walkthrough."""
