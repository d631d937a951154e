"""The HTTP server: `regard serve` for programs, and the studio, the same server with a page on top."""
