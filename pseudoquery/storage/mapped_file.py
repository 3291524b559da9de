"""Files mapped into memory, without a descriptor that stays open.

Python's own mappings keep one each, and a process may have about a thousand: an index of many
segments would take most of them.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PAGE = mmap.PAGESIZE
POPULATE_READ = 22
"""Linux reads the pages now, and says if it can't."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FAILED = ctypes.c_void_p(-1).value


def map_file(path: Path) -> NDArray[np.uint8]:
    """Map a file that is not empty; it is unmapped with the last array of its bytes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        # Nobody writes to it; but torch takes only memory that could be written to, and changes to
        # this one stay in this process.
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        address = _libc.mmap(None, size, protection, mmap.MAP_PRIVATE, descriptor, 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)
    content = (ctypes.c_uint8 * size).from_address(address)
    weakref.finalize(content, _libc.munmap, address, size).atexit = False
    return np.frombuffer(memoryview(content), np.uint8)


def read_ahead(content: NDArray[np.uint8]) -> None:
    """Bring mapped bytes into memory.

    A page that the disk can't give would end the process that touches it; here it is an error.
    """
    address = content.ctypes.data
    start = address - address % PAGE
    if not content.size or not _libc.madvise(start, address + content.size - start, POPULATE_READ):
        return
    if ctypes.get_errno() != errno.EINVAL:  # as of an older Linux, which does not know this advice
        raise OSError(errno.EIO, os.strerror(errno.EIO))
