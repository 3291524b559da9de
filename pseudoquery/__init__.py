"""Dense retrieval in which each document is represented by the few questions it can answer."""
