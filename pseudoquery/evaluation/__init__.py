"""From a test collection and an index to figures."""
