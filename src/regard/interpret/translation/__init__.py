"""Translations step by step, with the cross-attention of every step."""
