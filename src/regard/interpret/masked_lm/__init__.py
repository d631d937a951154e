"""Comparisons of what masked language models predict at a blank."""
