"""The decks' worked examples, each small enough to train while one watches."""
