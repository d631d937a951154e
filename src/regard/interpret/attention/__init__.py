"""Where a model looks: attention maps of any family, joined over layers, and small enough for a page."""
