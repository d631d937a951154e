"""Speed against peers, as ratios taken in one run: `python -m benchmarks.NAME`. Never part of the tests."""
