"""A retriever for LlamaIndex; the class is in `pseudoquery.integrations.llama_index`."""

from pseudoquery.integrations.llama_index import PseudoqueryRetriever

__all__ = ["PseudoqueryRetriever"]
