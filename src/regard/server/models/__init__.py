"""Models that answer requests: their processes, and in these the queue, the batches and the verbs. No HTTP."""
