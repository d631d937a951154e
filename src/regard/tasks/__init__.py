"""Fine-tuning tasks: model inputs from examples, the loss, and predictions and metrics from logits."""
