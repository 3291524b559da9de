"""The sentence-transformers module that turns token embeddings into query and document vectors.

Every representation of the paper is a set of weighted means of the document's tokens: they differ
only in each token's share in each vector. So one module serves them all, and a vector can always
say which tokens it was made of.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NamedTuple, Self, cast

import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base import BaseModel
from sentence_transformers.multi_vector_encoder.modules import BaseTokenPooling
from torch import Tensor, nn

from pseudoquery.method.kmeans import kmeans, positions_of_ranks, random_ranks, relative_positions
from pseudoquery.method.representation import Representation


class Tokens(NamedTuple):
    """A batch of encoded texts, padded to one length."""

    embeddings: Tensor
    """(texts, tokens, dim)"""
    weights: Tensor
    """(texts, tokens): 1 for a token, 0 for padding, more for a mean that stands for several."""
    special: Tensor
    """(texts, tokens): whether it is a token that the tokenizer added, such as [CLS]."""


class Vectors(NamedTuple):
    """The vectors of a batch of texts, padded to one number."""

    values: Tensor
    """(texts, vectors, dim)"""
    mask: Tensor
    """(texts, vectors): False where a text has fewer vectors."""
    owners: Tensor
    """(texts, tokens): the vector to which each token contributes most, or -1."""


class Pooling(BaseTokenPooling):
    """Makes one query vector (or all of them) and k document vectors, as its settings say."""

    __module__ = "pseudoquery.pooling"  # saved models name it so, wherever the class is
    config_keys: list[str] = [*(field.name for field in fields(Representation)), "dimension"]  # noqa: RUF012

    def __init__(self, *, dimension: int | None = None, **settings: Any) -> None:
        super().__init__(tasks=["query", "document"])
        self.representation = Representation(**settings)
        self.dimension = dimension
        self.special_ids = torch.empty(0, dtype=torch.int64)
        if self.representation.documents == "learnt":
            if dimension is None:
                raise ValueError("learnt document vectors need the dimension of the embeddings")
            generator = torch.Generator().manual_seed(0)
            codes = torch.randn(self.representation.k, dimension, generator=generator)
            self.codes = nn.Parameter(codes / dimension**0.5)

    def on_model_ready(self, model: BaseModel) -> None:
        """Learn from the tokenizer which tokens it adds of its own accord."""
        # An unknown word's token is special to the tokenizer, but stands for text.
        self.special_ids = torch.tensor(model.tokenizer("")["input_ids"], dtype=torch.int64)

    def forward(  # type: ignore[override]
        self, features: dict[str, Any], task: str | None = None
    ) -> dict[str, Any]:
        """Replace the token embeddings and their mask by the vectors and theirs."""
        embeddings = features["token_embeddings"]
        weights = features["attention_mask"].to(torch.float32)
        special = torch.zeros_like(weights, dtype=torch.bool)
        if "special_tokens_mask" in features:
            special = features["special_tokens_mask"].bool()
        elif "input_ids" in features:
            special = torch.isin(features["input_ids"], self.special_ids.to(embeddings.device))
        # Mixed precision is for the encoder. In half of the digits, means and scores differ from
        # those of an index, by more than a training can learn from at a high scale. Which cluster
        # a token is in may be told by the digits that the encoder computed with: the others are its
        # errors, and a token that they would move is as near to either mean.
        device, digits = embeddings.device.type, None
        if torch.is_autocast_enabled(device):
            embeddings, digits = embeddings.float(), torch.get_autocast_dtype(device)
        with torch.autocast(device, enabled=False):
            vectors = self.vectors(Tokens(embeddings, weights, special), task, digits)
        return {**features, "token_embeddings": vectors.values, "attention_mask": vectors.mask}

    def vectors(
        self, tokens: Tokens, task: str | None = None, digits: torch.dtype | None = None
    ) -> Vectors:
        """Make the vectors of a batch, for the task "query" or (the default) "document".

        Clusters are found on the tokens rounded to the type `digits`; their means are not rounded.
        """
        settings = self.representation
        kind: str
        if task == "query":
            weights, kind, mix = tokens.weights, settings.query, 0.0
        else:
            weights, kind, mix = self._taking_part(tokens), settings.documents, settings.mix_mean
        if kind == "tokens":
            values, mask = tokens.embeddings, weights > 0
            positions = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
            owners = positions.masked_fill(~mask, -1)
        else:
            shares = self._shares(kind, tokens, weights, digits)
            if task != "query" and settings.append != "none":
                shares = torch.cat([shares, self._shares(settings.append, tokens, weights)], dim=1)
            values = shares.to(tokens.embeddings.dtype) @ tokens.embeddings
            mask = shares.any(dim=-1)
            largest, owners = shares.max(dim=1)
            owners = owners.masked_fill(largest == 0, -1)
        if mix:
            values = values + mix * (_uniform(tokens.weights).to(values.dtype) @ tokens.embeddings)
        if settings.normalise:
            values = nn.functional.normalize(values, dim=-1)
        # A mean of opposite tokens has no direction; it would score 0 and beat real, negative dots.
        return Vectors(values, mask & values.any(dim=-1), owners)

    def pool_one(self, embedding: Tensor, **_: Any) -> Tensor:
        """Make the document vectors of one text from its token embeddings (tokens, dim)."""
        batch = embedding.unsqueeze(0)
        nothing = torch.zeros(batch.shape[:2], dtype=torch.bool, device=batch.device)
        vectors = self.vectors(Tokens(batch, (~nothing).float(), nothing))
        return vectors.values[0][vectors.mask[0]]

    def take_codes(self, other: Pooling) -> None:
        """Keep what another pooling has learnt, if it fits this one's settings."""
        learnt = all(pooling.representation.documents == "learnt" for pooling in (self, other))
        if learnt and self.codes.shape == other.codes.shape:
            self.codes = other.codes

    def save(self, output_path: str, *_: Any, safe_serialization: bool = True, **__: Any) -> None:
        """Write the settings, and the learnt codes if there are any."""
        self.save_config(output_path)
        if self.representation.documents == "learnt":
            self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any
    ) -> Self:
        """Read what `save` wrote, from a folder or the Hub."""
        hub = {key: kwargs[key] for key in _HUB_ARGUMENTS if key in kwargs}
        config = cls.load_config(model_name_or_path, subfolder=subfolder, **hub)
        module = cls(**config)
        if module.representation.documents == "learnt":
            cls.load_torch_weights(model_name_or_path, subfolder=subfolder, model=module, **hub)
        return module

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that `save_config` writes."""
        return {**self.representation.settings(), "dimension": self.dimension}

    def _taking_part(self, tokens: Tokens) -> Tensor:
        """Weigh a document's tokens; a text of special tokens alone has nothing to say."""
        regular = tokens.weights.masked_fill(tokens.special, 0.0)
        if not self.representation.special_tokens:
            return regular
        return tokens.weights * regular.any(dim=1, keepdim=True)

    def _shares(
        self, kind: str, tokens: Tokens, weights: Tensor, digits: torch.dtype | None = None
    ) -> Tensor:
        """(texts, vectors, tokens): how much of each vector each token makes; sums to 1 or 0."""
        settings = self.representation
        match kind:
            case "pseudo-queries":
                points = _rounded(tokens.embeddings.detach(), digits)
                return _cluster_shares(points, weights, settings)
            case "cls":
                return _first(tokens.weights, 1) * weights.any(dim=1)[:, None, None]
            case "mean":
                return _uniform(weights)
            case "first":
                return _first(weights, settings.k)
            case "random":
                real = weights > 0
                ranks = random_ranks(real.sum(dim=1, keepdim=True), real.shape[1], settings.k, 0)
                return _chosen(real, ranks)
            case "stretches":
                return _stretches(weights, settings.k)
            case _:
                attention = self.codes.to(tokens.embeddings.dtype) @ tokens.embeddings.mT
                attention = attention.masked_fill((weights == 0).unsqueeze(1), -torch.inf)
                return torch.softmax(attention, dim=-1).nan_to_num(0.0)


_HUB_ARGUMENTS = ("token", "cache_folder", "revision", "local_files_only")


def _rounded(points: Tensor, digits: torch.dtype | None) -> Tensor:
    """Round to a type, if one is given; what is too large for it becomes its largest number."""
    if digits is None:
        return points
    largest = torch.finfo(digits).max
    return points.to(digits).clamp(-largest, largest)


def _cluster_shares(points: Tensor, weights: Tensor, settings: Representation) -> Tensor:
    """(texts, tokens, dim) -> (texts, k, tokens): each token wholly in its cluster's mean."""
    clusters = kmeans(
        points,
        weights,
        settings.k,
        seeding=settings.seeding,
        iterations=settings.iterations,
        locality=settings.locality,
    )
    labels = torch.arange(settings.k, device=points.device)
    member = (clusters.assignments.unsqueeze(1) == labels[:, None]) * weights.unsqueeze(1)
    return member / clusters.counts.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(-1)


def _uniform(weights: Tensor) -> Tensor:
    """(texts, tokens) -> (texts, 1, tokens): one mean of them all."""
    return (weights / weights.sum(dim=1, keepdim=True).clamp(min=1.0)).unsqueeze(1)


def _first(weights: Tensor, k: int) -> Tensor:
    """(texts, tokens) -> (texts, k, tokens): the first k tokens, one vector each."""
    ranks = torch.arange(k, device=weights.device).expand(len(weights), -1)
    return _chosen(weights > 0, ranks)


def _stretches(weights: Tensor, k: int) -> Tensor:
    """(texts, tokens) -> (texts, k, tokens): means of what stands in each k-th of the text."""
    stretch = (k * relative_positions(weights)).long().clamp(max=k - 1)
    member = nn.functional.one_hot(stretch, k).mT * weights.unsqueeze(1)
    return member / member.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)


def _chosen(real: Tensor, ranks: Tensor) -> Tensor:
    """One vector for each token named by its rank among the real ones; a token only once."""
    positions = positions_of_ranks(real, ranks)
    repeated = torch.zeros_like(positions, dtype=torch.bool)
    repeated[:, 1:] = positions[:, 1:] == positions[:, :-1]
    shares = nn.functional.one_hot(positions, real.shape[1]).to(torch.float32)
    return shares * real.unsqueeze(1) * ~repeated.unsqueeze(-1)


def pooling_of(model: MultiVectorEncoder) -> Pooling:
    """Return the module of a model that makes its vectors."""
    return cast(Pooling, model[-1])
