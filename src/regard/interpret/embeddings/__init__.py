"""Where texts and words lie: contexts, maps of sentences, neighbours, and the lecture's walk to a classifier."""
