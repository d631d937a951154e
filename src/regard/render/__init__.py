"""What people look at: web pages and drawings in the terminal, made of plain numbers and strings."""
