"""Scattering features of images of 28 x 28 pixels: what a network could learn from no row of a hospital.

The wavelet scattering transform (Bruna and Mallat 2013, "Invariant Scattering Convolution Networks"), with the Morlet
wavelets of kymatio (Andreux et al. 2020), J = 2 scales and L = 8 angles. With * a convolution,

    S = (x * phi,  |x * psi_a| * phi,  ||x * psi_a| * psi_b| * phi),

for the 16 wavelets a and for the 64 pairs of a at scale 0 and b at scale 1: 81 channels, each sampled at 7 x 7 places.
phi is a Gaussian of 1.6 pixels. A wavelet at scale j and angle t is

    psi(u) = g(u) (exp(i k u1) - beta) / (2 pi s^2 / r),    g(u) = exp(-(u1^2 + r^2 u2^2) / (2 s^2)),

where (u1, u2) is u turned by t, s = 0.8 2^j, k = 3 pi / 4 / 2^j, r = 4 / L, and beta makes the sum of psi zero.
Convolutions are circular, on images that are reflected at their borders.

Tramer and Boneh 2021 ("Differentially Private Learning Needs Better Features (or Much More Data)") train linear models
on these features, after group normalisation: in each image, mean 0 and variance 1 over the values of 3 channels. That
uses one row at a time, so it costs no privacy.
"""

import numpy as np
import torch

SCALES, ANGLES = 2, 8
BORDER = 4  # pixels that are reflected
SIDE = 28 + 2 * BORDER
CHANNELS, PLACES, GROUPS = 1 + SCALES * ANGLES + ANGLES**2, 7, 27
ROUNDING = 1e-5  # added to a variance, as torch does
CHUNK = 50  # images at a time, which fit the processor's cache


def features(images: np.ndarray) -> np.ndarray:
    """The normalised features (n, 3969) of images (n, 28, 28) of 256 shades."""
    found = np.empty((len(images), CHANNELS * PLACES**2), np.float32)
    first, second = torch.from_numpy(_wavelets(0)), torch.from_numpy(_wavelets(1))
    for start in range(0, len(images), CHUNK):
        x = torch.tensor(images[start : start + CHUNK] / np.float32(255), dtype=torch.float32)[:, None]
        channels = _scattered(torch.nn.functional.pad(x, (BORDER,) * 4, mode="reflect"), first, second)
        normal = torch.nn.functional.group_norm(channels, GROUPS, eps=ROUNDING)
        found[start : start + CHUNK] = normal.flatten(1).numpy()
    return found


def _scattered(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The channels (n, 81, 7, 7) of padded images (n, 1, 36, 36); wavelets are given by their Fourier transforms."""
    transformed = torch.fft.fft2(x)
    U = torch.fft.ifft2(transformed * first).abs()  # (n, 8, 36, 36)
    coarse = [_halved(transformed * second), *(_halved(u[:, None] * second) for u in torch.fft.fft2(U).unbind(1))]
    V = torch.cat([torch.fft.ifft2(part).abs() for part in coarse], dim=1)  # (n, 8 + 64, 18, 18)
    return torch.cat([_averaged(x), _averaged(U), _averaged(V)], dim=1)


def _halved(transformed: torch.Tensor) -> torch.Tensor:
    """The Fourier transform of every other pixel."""
    half = transformed.shape[-1] // 2
    rows = transformed[..., :half, :] + transformed[..., half:, :]
    return (rows[..., :half] + rows[..., half:]) / 4


def _averaged(u: torch.Tensor) -> torch.Tensor:
    """u * phi at the places of the padded image, without those that are all border."""
    side, step = u.shape[-1], SIDE // u.shape[-1]
    at = BORDER * np.arange(1, PLACES + 1)
    distance = (at[:, None] - step * np.arange(side) + SIDE // 2) % SIDE - SIDE // 2  # on a circle
    sigma = 0.8 * 2 ** (SCALES - 1)
    weights = step * np.exp(-(distance**2) / (2 * sigma**2)) / np.sqrt(2 * np.pi * sigma**2)
    g = torch.tensor(weights, dtype=torch.float32)
    return ((u @ g.T).mT @ g.T).mT  # one direction after the other


def _wavelets(j: int) -> np.ndarray:
    """The Fourier transforms of the wavelets at a scale (8, 36, 36); they are real."""
    s, k, r = 0.8 * 2**j, 3 * np.pi / 4 / 2**j, 4 / ANGLES
    found = []
    for angle in (np.pi * (ANGLES // 2 - 1 - i) / ANGLES for i in range(ANGLES)):
        envelope, wave = np.zeros((SIDE, SIDE)), np.zeros((SIDE, SIDE), complex)
        for across, down in np.ndindex(5, 5):  # the filter wraps around
            offsets = SIDE * (across - 2), SIDE * (down - 2)
            x, y = (axis + offset for axis, offset in zip(np.mgrid[:SIDE, :SIDE], offsets, strict=True))
            u1, u2 = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
            g = np.exp(-(u1**2 + r**2 * u2**2) / (2 * s**2)) / (2 * np.pi * s**2 / r)
            envelope += g
            wave += g * np.exp(1j * k * u1)
        psi = wave - wave.sum() / envelope.sum() * envelope
        found.append(np.fft.fft2(psi).real)
    return np.stack(found).astype(np.float32)
