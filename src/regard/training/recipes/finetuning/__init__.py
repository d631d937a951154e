"""Fine-tuning: a pretrained model and a file of examples to a model that does a task, with its scores."""
