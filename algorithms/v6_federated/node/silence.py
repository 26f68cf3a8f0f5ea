"""What a node computes must show in its answer alone: not in its log, and not, for one row's sake, in its time.

A warning of numpy says that some row has led to a division by zero, and a processor takes many times as long for
subnormal numbers, those next to 0. Whoever chooses a model's weights can make one row alone cause either.
"""

import contextlib
import ctypes
import functools
import platform
import re
import warnings
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from v6_federated.rules.environment import debugging

# where glibc's fenv_t has the register MXCSR of x86-64 processors (bits/fenv.h), and its bits: flush to zero, and
# denormals are zero
ENVIRONMENT, REGISTER, FLUSH = 32, 28, 0x8040

EVERY_WARNING = "ignore", re.compile(""), Warning, None, 0  # as a filter, which equals none that others set


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Suppress all warnings: they would lie in the log, which researchers may read.

    With V6_FEDERATED_DEBUG=1 they are shown, except those of numbers that are not finite: these are rejected later.
    ``warnings.catch_warnings`` is not used: of two threads, the one that ends later would restore the filters of the
    other, and nobody would see a warning any more.
    """
    if debugging():
        with np.errstate(over="ignore", invalid="ignore"):
            yield
        return
    filters = cast(list[Any], warnings.filters)
    filters.insert(0, EVERY_WARNING)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _remove(filters)
        if warnings.filters is not filters:  # another thread has put a copy in its place
            _remove(cast(list[Any], warnings.filters))


def _remove(filters: list[Any]) -> None:
    with contextlib.suppress(ValueError):  # what ran here may have removed all filters
        filters.remove(EVERY_WARNING)


@contextlib.contextmanager
def subnormals_as_zero() -> Iterator[None]:
    """Compute with 0 in place of subnormal numbers, those below 1.2e-38 in float32 and 2.2e-308 in float64.

    This thread does so, and threads that it starts. Nothing changes on other processors than x86-64, or without glibc;
    the C function is the standard's ``fesetenv``.
    """
    library = _library()
    if library is None:
        yield
        return
    before, changed = ((ctypes.c_uint32 * (ENVIRONMENT // 4))() for _ in range(2))
    library.fegetenv(before)
    ctypes.memmove(changed, before, ENVIRONMENT)
    changed[REGISTER // 4] |= FLUSH
    library.fesetenv(changed)
    try:
        yield
    finally:
        library.fesetenv(before)


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The C library, if it is known how it names the register."""
    if platform.machine() not in ("x86_64", "AMD64") or platform.libc_ver()[0] != "glibc":
        return None
    return ctypes.CDLL("libm.so.6")
