"""The type of numpy's arrays in annotations."""

from typing import Any, TypeAlias

import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
"""An array of any shape and any type of element; what it holds is said where it is used."""
