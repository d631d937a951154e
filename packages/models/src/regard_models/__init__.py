"""More built-in models of Regard, one folder each; `regard.known` finds them here."""
