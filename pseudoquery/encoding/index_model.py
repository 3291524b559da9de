"""The model of an index: loaded to make an index, and compared with it when the index is opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pseudoquery.errors import ModelError
from pseudoquery.method.representation import Representation

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder


def load_new_model(
    model: str | MultiVectorEncoder, representation: Representation | None, precision: str
) -> tuple[MultiVectorEncoder, dict[str, Any]]:
    """Load the model of a new index; returns it with the settings of the index that it decides."""
    from pseudoquery.encoding.encode import encode_queries
    from pseudoquery.encoding.model import fingerprint, representation_of
    from pseudoquery.encoding.precision import in_precision

    if representation is not None and not isinstance(model, str):
        raise ModelError(
            "a model that is in memory has its representation already; "
            "give it to load_model(name, representation) instead."
        )
    if isinstance(model, str) and Path(model).is_dir():
        model = str(Path(model).resolve())
    loaded = in_precision(load_or_take(model, representation, precision), precision)
    return loaded, {
        "model": model if isinstance(model, str) else "",
        "fingerprint": fingerprint(loaded),
        "dimension": int(encode_queries(loaded, ["dimension"])[0].shape[1]),
        "representation": representation_of(loaded).settings(),
        "precision": precision,
    }


def load_same_model(
    model: str | MultiVectorEncoder,
    representation: Representation,
    precision: str,
    fingerprint: str,
    location: Path | str,
) -> MultiVectorEncoder:
    """Load the model of an existing index, which has to be the one that the index was made with."""
    from pseudoquery.encoding.model import fingerprint as fingerprint_of
    from pseudoquery.encoding.precision import in_precision

    if not model:
        raise ModelError(
            f"{location} was made with a model that was in memory; "
            "give it to Index.open(folder, model=...)."
        )
    loaded = load_or_take(model, representation, precision)
    if fingerprint_of(loaded) != fingerprint:
        given = repr(model) if isinstance(model, str) else "the one that was given"
        raise ModelError(
            f"{location} was made with another model than {given} is now; "
            "use the original one, or build the index again."
        )
    return in_precision(loaded, precision)


def load_or_take(
    model: str | MultiVectorEncoder, representation: Representation | None, precision: str
) -> MultiVectorEncoder:
    """Load a model by its name; a model in memory is taken as it is."""
    if not isinstance(model, str):
        return model
    from pseudoquery.encoding.model import load_model
    from pseudoquery.encoding.precision import by_openvino

    return load_model(model, representation, "cpu" if by_openvino(precision) else None)
