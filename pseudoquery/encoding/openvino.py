"""The encoder on OpenVINO: the same weights, about twice as fast on a CPU.

OpenVINO reads what torch exports; sentence-transformers' own backend for it asks for older versions
of transformers. Exporting takes seconds, so what comes of it is kept in the user's cache, for all
precisions alike.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from pseudoquery.encoding.precision import precision_of
from pseudoquery.errors import ModelError

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

    from pseudoquery.encoding.embed import TokenEncoder

ENGINE: Mapping[str, Mapping[str, Any]] = {
    "openvino-float32": {"INFERENCE_PRECISION_HINT": "f32"},
    "openvino-bfloat16": {"INFERENCE_PRECISION_HINT": "bf16"},
    # Activations are rounded to 8 bits in groups of so many numbers, each with a scale of its own.
    "openvino-int8": {
        "INFERENCE_PRECISION_HINT": "f32",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "64",
    },
}
CHECKSUM = "encoder.sha256"
Encode = Callable[[Tensor, Tensor], Tensor]
_mutex = Lock()  # torch exports for one thread at a time
_compiled: WeakKeyDictionary[MultiVectorEncoder, dict[str | None, Encode]] = WeakKeyDictionary()


def openvino_encoder(model: MultiVectorEncoder, encoder: TokenEncoder) -> Encode:
    """Return what does the same as this part of the model, in the model's precision."""
    with _mutex:
        by_task = _compiled.setdefault(model, {})
        if encoder.task not in by_task:
            by_task[encoder.task] = _compile(encoder, precision_of(model))
        return by_task[encoder.task]


def _compile(encoder: TokenEncoder, precision: str) -> Encode:
    openvino = _openvino()
    network = _network(openvino, encoder)
    if precision == "openvino-int8":
        _round_weights(openvino, network)
    settings = {
        **ENGINE[precision],
        "PERFORMANCE_HINT": "LATENCY",  # all threads work on one batch
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }
    engine = openvino.compile_model(network, "CPU", settings)

    def encode(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        # A request of its own for each call: several threads may ask at once.
        request = engine.create_infer_request()
        given = {"input_ids": input_ids.numpy(), "attention_mask": attention_mask.numpy()}
        return torch.from_numpy(request.infer(given, share_inputs=True)[0])

    return encode


def _openvino() -> Any:
    """Import OpenVINO, which would tell its makers of it, and of each conversion."""
    silenced = "openvino" not in sys.modules
    if silenced:
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    try:
        import openvino
    finally:
        if silenced:
            del sys.modules["openvino_telemetry"]
    return openvino


def _network(openvino: Any, encoder: TokenEncoder) -> Any:
    """Read the exported network from the cache, or export it and keep it there."""
    folder = _cache() / _digest(encoder)
    try:
        # OpenVINO believes what it reads, and damaged weights would spoil the vectors unseen.
        if _checksum(folder) == (folder / CHECKSUM).read_text():
            return openvino.Core().read_model(folder / "encoder.xml")
    except (OSError, RuntimeError, UnicodeDecodeError):
        pass  # there is none, or it can't be read
    shutil.rmtree(folder, ignore_errors=True)
    network = _export(openvino, encoder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            whole = Path(made) / "whole"
            openvino.save_model(network, whole / "encoder.xml", compress_to_fp16=False)
            (whole / CHECKSUM).write_text(_checksum(whole))
            whole.rename(folder)
    except (OSError, RuntimeError):
        # The disk may be full or not ours to write, or another process was faster.
        pass
    return network


def _export(openvino: Any, encoder: TokenEncoder) -> Any:
    ids = torch.zeros(2, 8, dtype=torch.int64)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    any_size = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    try:
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")  # of torch's own parts, about each other
            exported = torch.export.export(
                encoder.eval(), (), given, dynamic_shapes=dict.fromkeys(given, any_size)
            )
            return openvino.convert_model(exported)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(
            f"OpenVINO can't run this encoder ({reason}); choose the precision float32 or bfloat16."
        ) from error


def _round_weights(openvino: Any, network: Any) -> None:
    """Round the weights of linear layers to 8 bits, with a scale for each output."""
    ops = openvino.opset15
    for node in network.get_ops():
        if node.get_type_name() != "MatMul":
            continue
        source = node.input_value(1).get_node()
        if source.get_type_name() != "Constant":
            continue
        weights = source.get_data()
        inputs = -1 if node.get_attributes()["transpose_b"] else -2
        scales = np.abs(weights).max(axis=inputs, keepdims=True) / 127
        scales = np.where(scales > 0, scales, 1).astype(np.float32)
        codes = np.rint(weights / scales).astype(np.int8)
        rounded = ops.multiply(ops.convert(ops.constant(codes), "f32"), ops.constant(scales))
        node.input(1).replace_source_output(rounded.output(0))


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "pseudoquery" / "openvino"


def _checksum(folder: Path) -> str:
    """Hash the files of an exported network."""
    digest = hashlib.sha256()
    for name in ("encoder.xml", "encoder.bin"):
        with (folder / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _digest(encoder: TokenEncoder) -> str:
    """Hash all that makes an exported network what it is."""
    digest = hashlib.sha256()
    parts = [f"{name} {version(name)}" for name in ("openvino", "torch", "transformers")]
    # Most modules share one.
    configs = {
        id(module.config): module.config
        for module in encoder.modules()
        if hasattr(module, "config")
    }
    parts += [repr(encoder), *map(str, configs.values())]
    digest.update("\n".join(parts).encode())
    for name, tensor in sorted(encoder.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()[:32]
