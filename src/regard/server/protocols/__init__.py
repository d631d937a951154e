"""What clients say: OpenAI's API, Text Embeddings Inference's, and the verbs of Regard; thin adapters over models."""
