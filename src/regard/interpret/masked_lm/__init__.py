"""What models put into a blank: sentences, grids and years compared, word by word."""
