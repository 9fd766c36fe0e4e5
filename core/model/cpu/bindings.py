"""The functions and structures of kernels.c field by field, the latter by its names with a C before them."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_double, c_float, c_int64, c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.model.bfloat16 import Weight
from core.model.cpu import build


class CMatrix(Structure):
    _fields_ = [("weight", c_void_p), ("bias", c_void_p), ("outs", c_int64), ("ins", c_int64), ("steps", c_int64)]


class CLayer(Structure):
    _fields_ = [
        *(("norm", c_void_p), ("qkv", CMatrix), ("qk_norm", c_void_p), ("out", CMatrix)),
        *(("attention_out_norm", c_void_p), ("mlp_norm", c_void_p), ("gate_up", CMatrix), ("down", CMatrix)),
        *(("mlp_out_norm", c_void_p), ("cos", c_void_p), ("sin", c_void_p), ("window", c_int64)),
    ]


class CModel(Structure):
    _fields_ = [
        *(("embedding", c_void_p), ("layers", POINTER(CLayer)), ("norm", c_void_p)),
        *(("head", CMatrix), ("head_ids", c_void_p), ("cache", c_void_p), ("eps", c_float), ("query_scalar", c_float)),
        *(("num_layers", c_int64), ("hidden", c_int64), ("num_gates", c_int64), ("num_heads", c_int64)),
        *(("num_kv_heads", c_int64), ("head_dim", c_int64), ("num_pages", c_int64)),
        *(("in_bf16", c_int64), ("gelu_tanh", c_int64), ("threads", c_int64)),
    ]


class CSpan(Structure):
    _fields_ = [("start", c_int64), ("length", c_int64), ("first_page", c_int64)]


class CPass(Structure):
    _fields_ = [
        *(("tokens", POINTER(c_int64)), ("spans", POINTER(CSpan)), ("pages", POINTER(c_int64))),
        *(("wanted", POINTER(c_int64)), ("logits", c_void_p)),
        *(("num_rows", c_int64), ("num_spans", c_int64), ("num_wanted", c_int64)),
    ]


class CDrawing(Structure):
    _fields_ = [
        *(("steps", c_int64), ("num_ids", c_int64), ("most", c_int64), ("noise", c_void_p)),
        *(("edges", c_void_p), ("chances", c_void_p), ("worths", c_void_p), ("survivals", c_void_p)),
        *(("num_edges", c_int64), ("enough", c_int64)),
        *(("drawn", POINTER(c_int64)), ("margins", POINTER(c_double))),
    ]


def load(level: str) -> ctypes.CDLL:
    """The library for a level, its `forward` and `draw` to be called with structures by reference."""
    library = build.load(level)
    for function in (library.forward, library.draw):
        function.restype, function.errcheck = c_int64, _check
    return library


def pack(library: ctypes.CDLL, weight: Weight) -> NDArray[np.int32]:
    """A weight [outs, ins] in fp32 or bf16 as [panels, steps, WIDTH]: a step is an input in fp32, or two in bf16.

    What it lacks to the end of the last panel's last step is 0. Not laid out in that order yet.
    """
    width, steps = (c_int64.in_dll(library, name).value for name in ("panel_width", "panel_steps"))
    at_once = 1 if weight.dtype == np.float32 else 2 * steps
    outs, ins = weight.shape
    words = np.pad(weight, ((0, -outs % width), (0, -ins % at_once))).view(np.int32)
    return words.reshape(-1, width, words.shape[1]).transpose(0, 2, 1)


def _check(result: Any, *_: object) -> Any:
    if result < 0:
        raise MemoryError("a pass of so many rows over so long sessions")
    return result
