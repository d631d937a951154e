"""Optional accelerations of decoding. Without this package every model computes the same results, more slowly."""
