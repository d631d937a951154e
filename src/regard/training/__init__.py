"""Training: the loop, its optimizers, schedules and checkpoints."""
