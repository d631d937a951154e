"""Quality, and speed relative to other libraries measured in the same run: `python -m benchmarks.NAME`."""
