"""Speed compared with peers, as ratios measured in one run: `python -m benchmarks.NAME`. Not part of the tests."""
