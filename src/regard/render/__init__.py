"""Pages, drawings and terminal output, made of plain numbers and strings."""
