"""The studio: one local page over the library, and the small server behind it.

Knows HTTP and which function answers which view. What a view shows is computed in `inside`, and drawn by the script
that `web/` builds.
"""
