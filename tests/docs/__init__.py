"""The documentation is true: links lead somewhere, examples run, nothing is left out."""
