"""Model folders on disk: config.json and weights in the formats of transformers and of Regard."""
