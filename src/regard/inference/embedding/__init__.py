"""Embedding: the engine (texts to vectors), the scikit-learn transformer `Embedder`, and bulk jobs from file to file.

Reading order: embedder, engine, bulk.
"""
