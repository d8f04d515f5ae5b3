"""Memory as the kernel sees it: where an object's bytes stand, and objects whose bytes are still to be filled.

A first touch costs 4 KiB at a time what a copy costs eightfold (64 MiB: 38 ms, into warm memory 7), so large objects
ask for pages of 2 MiB, which on most systems are had for the asking (12 ms).  None of it is shared, and nothing must
be given back.

For objects that nobody else has seen yet, and for readers: to write into others is undefined.
"""

from __future__ import annotations

import ctypes
from typing import Any

HUGE_BYTES = 2 << 20  # a page of the larger kind
HUGE_FROM = 2 * HUGE_BYTES  # a smaller object may hold none that is whole
# A virtual machine whose host takes free memory back has no large page at hand but those just freed: others cost it
# 5 ms per MiB (4 KiB at a time: 1), which for what is larger than this outweighs all that is ever won
HUGE_UPTO = 128 << 20
MADV_HUGEPAGE = 14
SHARED_FROM = 16 << 20  # a thread costs 0.1 ms, and so many bytes 4

_madvise = ctypes.CDLL(None).madvise
_make_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_make_bytearray = ctypes.pythonapi.PyByteArray_FromStringAndSize
for _make in (_make_bytes, _make_bytearray):
    _make.restype, _make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t)


class _Buffer(ctypes.Structure):
    """Py_buffer, of which only the first field is wanted."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get_buffer, _release_buffer = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int)
_release_buffer.argtypes, _release_buffer.restype = (ctypes.POINTER(_Buffer),), None


def address(part: Any) -> int:
    """Return where the bytes of an object begin: as long as it lives, and is not resized."""
    buffer = _Buffer()
    _get_buffer(part, buffer, 0)
    at = buffer.buf or 0
    _release_buffer(buffer)
    return at


def blank(size: int) -> Any:
    """Return an object of undefined content: `bytes` of -size, a `bytearray` of size (`parcel.size_of`).

    Raises:
        MemoryError: there is no room for it.
    """
    part = _make_bytes(None, -size) if size < 0 else _make_bytearray(None, size)
    if HUGE_FROM <= abs(size) <= HUGE_UPTO:
        at = address(part)
        start, end = -(-at // HUGE_BYTES) * HUGE_BYTES, (at + abs(size)) // HUGE_BYTES * HUGE_BYTES
        _madvise(ctypes.c_void_p(start), ctypes.c_size_t(max(0, end - start)), MADV_HUGEPAGE)  # refused: it is slower
    return part


def copied(part: memoryview | bytearray) -> Any:
    """Return the same bytes in an object of its own, a `bytes` if it could not be written to.

    Lets other threads run meanwhile, and takes one for half of what is very large: first touches are what it costs.
    """
    size = len(part)
    copy = blank(-size if memoryview(part).readonly else size)
    there, here = address(copy), address(part)
    if size < SHARED_FROM:
        ctypes.memmove(there, here, size)
        return copy
    import threading

    half = size // 2
    helper = threading.Thread(target=ctypes.memmove, args=(there, here, half), name="ptss-mp-copy", daemon=True)
    try:
        helper.start()
    except RuntimeError:  # no thread can be had (RLIMIT_NPROC)
        ctypes.memmove(there, here, half)
    ctypes.memmove(there + half, here + half, size - half)
    if helper.ident:
        helper.join()
    return copy
