"""Inference: token ids through a model on the machine one has, as fast as it allows.

`precision` chooses the data type and makes a model's copy for it, `batches` groups token ids by length into packed
batches, runs them and copies the results out while the next batch computes, `tuning` measures the best number of
threads and tokens on a CPU, `graphs` records CUDA graphs, `graph_decoder` decodes with them, `memory` limits what
allocator and kernels keep. Embeddings and predictions are computed by this package; it knows no task.
"""
