"""What a model that writes does at every step: the text, and what else it might have said."""
