"""Why a model says what it says: heads and layers taken out, gradients, and whether a shown map is the reason."""
