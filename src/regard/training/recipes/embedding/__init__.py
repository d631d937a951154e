"""Training of sentence-embedding models: pairs, triplets, scored pairs, or the vectors of a teacher."""
