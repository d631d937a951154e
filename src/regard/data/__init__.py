"""From files to batches. Importing the package imports nothing else: text input must not cost a torch import."""
