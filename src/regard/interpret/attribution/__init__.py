"""Which tokens a prediction depends on: attention maps, gradients and the evidence made of them."""
