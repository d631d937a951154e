"""The evaluation of fine-tuned models: metrics with intervals, calibration, thresholds, and the worst errors."""
