"""The worked examples of the lectures, each small enough to train while you watch."""
