"""Databases of arrays and folders of images."""

from pathlib import Path

import numpy as np
import pytest

from v6_federated.base.vantage6_api import DataError
from v6_federated.data import opening
from v6_federated.messages.job import DataSpec


def test_an_npz_and_a_folder_of_images_hold_the_same_rows(tmp_path):
    from PIL import Image

    X, y = np.random.default_rng(0).integers(0, 255, (12, 4, 4), dtype=np.uint8), np.arange(12) % 2
    np.savez(tmp_path / "rows.npz", x=X, y=y)
    for name in ("benign", "malign"):
        (tmp_path / "images" / name).mkdir(parents=True)
    for i, (image, label) in enumerate(zip(X, y, strict=True)):
        Image.fromarray(image).save(tmp_path / "images" / ("benign", "malign")[label] / f"{i:02}.png")
    archive = opening.open_database(tmp_path / "rows.npz").rows(DataSpec())
    folder = opening.open_database(tmp_path / "images").rows(DataSpec())
    assert archive.X.shape == (12, 16) and archive.X.dtype == np.float32 and archive.X.max() <= 1
    order = np.argsort(y, kind="stable")
    np.testing.assert_array_equal(folder.X, archive.X[order])
    assert folder.y.tolist() == ["benign"] * 6 + ["malign"] * 6


def test_images_of_16_bits_equal_their_first_8_bits(tmp_path):
    """Radiology uses them. They must not turn out white."""
    from PIL import Image

    X = np.random.default_rng(0).integers(0, 255, (4, 5, 5), dtype=np.uint8)
    for bits in (8, 16):
        for i, image in enumerate(X):
            folder = tmp_path / str(bits) / "ab"[i % 2]
            folder.mkdir(parents=True, exist_ok=True)
            pixels = image if bits == 8 else image.astype(np.uint16) * 257
            Image.fromarray(pixels).save(folder / f"{i}.png")
    few, many = (opening.open_database(tmp_path / bits).rows(DataSpec()) for bits in ("8", "16"))
    np.testing.assert_allclose(many.X, few.X, atol=1e-6)
    Image.fromarray(X[0]).save(tmp_path / "16" / "a" / "mixed.png")
    with pytest.raises(DataError, match="images of 8 bits and of 16"):
        opening.open_database(tmp_path / "16")


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 broken"])
def test_a_broken_npz_is_refused(tmp_path: Path, content):
    (tmp_path / "rows.npz").write_bytes(content)
    with pytest.raises(DataError, match="cannot be read"):
        opening.open_database(tmp_path / "rows.npz")


def test_an_npz_that_needs_unpickling_is_refused(tmp_path):
    np.savez(tmp_path / "rows.npz", x=np.array([{}, {}], dtype=object), y=np.arange(2))
    with pytest.raises(DataError, match="cannot be read"):
        opening.open_database(tmp_path / "rows.npz")


def test_an_npz_whose_features_are_not_a_table_is_refused(tmp_path):
    np.savez(tmp_path / "rows.npz", x=np.ones(30), y=np.ones(30))
    with pytest.raises(DataError, match=r"x and y .*expected \(n, \.\.\.\) features and \(n,\) labels"):
        opening.open_database(tmp_path / "rows.npz")


def test_an_image_that_cannot_be_read_is_refused_without_its_name(tmp_path):
    (tmp_path / "ill").mkdir()
    (tmp_path / "ill" / "Smith.png").write_bytes(b"noise")
    with pytest.raises(DataError, match="image") as error:
        opening.open_database(tmp_path)
    assert "Smith" not in str(error.value)
