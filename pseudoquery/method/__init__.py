"""The paper as pure functions of tensors: clusters, scores, bounds. No files, no models."""
