"""From a corpus to an index at a location, resumable."""
