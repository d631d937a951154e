"""Training of translation models on sentence pairs."""
