"""From a TOML file to a model."""
