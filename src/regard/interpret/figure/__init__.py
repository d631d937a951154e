"""Figure 1 of "Attention Is All You Need" with the tensors of a real sentence, and the effect of removing its parts."""
