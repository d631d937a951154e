"""Figure 1 of "Attention Is All You Need" with the tensors of a real sentence, and what its parts are good for."""
