"""Models in the formats of other programs: ONNX and sentence-transformers."""
