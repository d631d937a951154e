"""Translation with an encoder-decoder model: subwords, search, alignments, BLEU and model folders."""
