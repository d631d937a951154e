"""What a pretrained model is tuned for: from examples to rows of tokens, to targets, a loss, predictions and scores."""
