"""The few words that tell each pseudo query of a document from the document's other ones."""

from __future__ import annotations
