"""Analyses of embeddings: word senses, sentence maps, nearest neighbors, projections."""
