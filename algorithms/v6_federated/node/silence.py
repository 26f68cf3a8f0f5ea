"""What a node computes must show in its answer alone: not in its log, and not, for one row's sake, in its time.

A warning of numpy says that some row has led to a division by zero, and a processor takes many times as long for
subnormal numbers, those next to 0. Whoever chooses a model's weights can make one row alone cause either.
"""

import contextlib
import ctypes
import functools
import platform
import warnings
from collections.abc import Iterator

import numpy as np

from v6_federated.privacy.environment import debugging

# where glibc's fenv_t has the register MXCSR of x86-64 processors (bits/fenv.h), and its bits: flush to zero, and
# denormals are zero
ENVIRONMENT, REGISTER, FLUSH = 32, 28, 0x8040


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Suppress all warnings: they would lie in the log, which researchers may read.

    With V6_FEDERATED_DEBUG=1 they are shown, except those of numbers that are not finite: these are rejected later.
    """
    if debugging():
        with np.errstate(over="ignore", invalid="ignore"):
            yield
        return
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


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
