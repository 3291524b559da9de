"""The command `pseudoquery`: a thin skin over the library."""

from pseudoquery.cli.command import cli, main

__all__ = ["cli", "main"]
