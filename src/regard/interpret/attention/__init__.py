"""Attention maps of every model family, attention rollout and flow, and their views."""
