"""Text generation step by step: the text, and the candidates at every token."""
