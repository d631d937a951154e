"""Optional accelerations of decoding and training. Without this package everything works the same, more slowly."""
