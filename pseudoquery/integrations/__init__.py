"""Retrievers for LangChain, LlamaIndex and Haystack, and a model for MTEB."""
