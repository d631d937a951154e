"""Removes attention heads or layers from a model and measures how its predictions change."""
