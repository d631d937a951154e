"""Pretraining: objectives, data, the plan, the run and evaluation for BERT, GPT, T5 and ELMo."""
