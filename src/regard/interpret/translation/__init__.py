"""A translation as it was decoded: what was said at each step, and the encoder-decoder attention it was said with."""
