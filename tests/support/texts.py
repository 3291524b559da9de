"""Texts to encode, ordinary and strange."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from sentence_transformers import MultiVectorEncoder

from pseudoquery.encoding.encode import document_text, encode_documents, encode_texts
from pseudoquery.encoding.model import load_model
from pseudoquery.encoding.windows import Long, Task
from pseudoquery.method.encoded import DocumentVectors
from pseudoquery.method.representation import Representation
from pseudoquery.method.token_codes import TokenType
from pseudoquery.records import Document
from pseudoquery.search.explain import EncodedDocument

LIMIT = 64


WORDS = "the king of city that was old book in water and who had not green fire bird moon an it"


SHORT = [
    "the king of the city",
    "who found the old book?",
    "a river",
    "Zürich & café 42!",
    "an unknown 😀 sign in the \u4e2d text",
]


STRANGE = {
    "empty": "",
    "whitespace": " \n\t  ",
    "nul": "the\x00king\x00",
    "only nul": "\x00",
    "emoji": "😀😀 the 👨‍👩‍👧 family",
    "right to left": "שלום the عالم",
    "combining": "e\u0301 the n\u0303",
    "one word": "x" * 300,
    "one huge word": "q" * 5000,
    "literal special tokens": "the [SEP] king [CLS] of [MASK] [PAD] [UNK]",
}


def words(n: int, seed: int = 0) -> str:
    return " ".join(random.Random(seed).choices(WORDS.split(), k=n))


def encode_one(
    model: MultiVectorEncoder, text: str, task: Task = "document", long: Long = "windows"
) -> DocumentVectors:
    return encode_texts(model, [text], task, long)[0]


def encoded_document(
    model: MultiVectorEncoder,
    document: Document,
    long: Long = "windows",
    token_type: TokenType = "signs",
) -> EncodedDocument:
    """Encode a document for an explanation, as an index does."""
    (encoded,) = encode_documents(model, [document], long, token_type)
    return EncodedDocument(document, encoded, token_type, document_text(document)[1])


def with_representation(path: str, **settings: Any) -> MultiVectorEncoder:
    return load_model(path, Representation(**{"k": 4, **settings}), device="cpu")


def assert_sound(encoded: DocumentVectors, text: str, most: int) -> None:
    assert encoded.vectors.dtype == np.float32
    assert np.isfinite(encoded.vectors).all()
    assert len(encoded.vectors) <= most
    assert len(encoded.owners) == len(encoded.spans)
    assert encoded.owners.min(initial=-1) >= -1
    # A question without words is still a vector, of special tokens alone.
    owned = set(range(len(encoded.vectors))) if len(encoded.owners) else set()
    assert set(encoded.owners.tolist()) - {-1} == owned
    assert (encoded.spans[:, 0] <= encoded.spans[:, 1]).all()
    assert encoded.spans.max(initial=0) <= len(text)
    if len(encoded.vectors):
        np.testing.assert_allclose(np.linalg.norm(encoded.vectors, axis=1), 1, rtol=1e-5)
