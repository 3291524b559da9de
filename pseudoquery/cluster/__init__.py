"""Building, evaluating and mining on Ray."""
