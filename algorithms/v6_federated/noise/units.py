"""Units of noisy sums: whole numbers, which add up exactly, and whose noise is a discrete Gaussian."""

GRADIENT = 2**20  # of a clip: the rounding of the sum is far below the noise
COUNT = 2**16  # of a row: noise of less than four units has another distribution than is proven
MOMENT = 2**12  # of a clip, in a row; its square in products of two of its numbers
