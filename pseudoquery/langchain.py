"""A retriever for LangChain; the class is in `pseudoquery.integrations.langchain`."""

from pseudoquery.integrations.langchain import PseudoqueryRetriever

__all__ = ["PseudoqueryRetriever"]
