"""Analyses of what a model computes: attention, heads, ablation, attribution, probes, embeddings and Figure 1."""
