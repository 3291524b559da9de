"""The version, in a file that imports nothing, so that the build and `--version` are instant."""

VERSION = "0.1.0"
