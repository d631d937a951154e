"""The studio: one local page over the library, and the HTTP server behind it."""
