"""Text generation: one greedy search, one beam search and one sampler for every family with a decoder.

Reading order: decoder, beam_search, sampling, trace, text_generator.
"""
