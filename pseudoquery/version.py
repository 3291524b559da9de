"""The version. This file imports nothing: the build and `--version` stay instant."""

VERSION = "0.2.0"
