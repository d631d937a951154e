"""What each head does over many texts: a census of known patterns against chance."""
