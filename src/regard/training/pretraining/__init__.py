"""Pretraining: running text to a BERT that tells hidden words, or a GPT that tells the next one."""
