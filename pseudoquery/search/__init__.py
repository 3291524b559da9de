"""From a snapshot and query vectors to ranked documents, with proof."""
