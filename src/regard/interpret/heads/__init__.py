"""The head census: known patterns of attention heads, tested against chance."""
