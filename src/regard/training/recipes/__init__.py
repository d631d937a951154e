"""One recipe for each kind of training: its settings, data, loss, scores, and what it saves."""
