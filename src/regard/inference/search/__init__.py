"""Search: an index of texts on disk, exact and approximate nearest neighbors, BM25, near-duplicates and clusters.

Reading order: index (the folder and what can be done with it), index_folder, documents, exact, approximate, bm25,
results; duplicates and clusters use the same vectors.
"""
