"""From texts to vectors: models, windows, pooling."""
