"""Rows from tables, arrays and folders of images."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers import table, train
from vantage6.algorithm.tools.exceptions import (
    DataError,
)

from v6_federated.data import source
from v6_federated.messages.job import DataSpec
from v6_federated.privacy.policy import Policy


def test_a_missing_value_is_refused_by_its_column_alone():
    """Infinite values first, which no step fills."""
    rows = table(20)
    rows.loc[7, "x2"] = np.nan
    for value, says, cure in [(1.0, "missing values in", "--preprocess impute"), (np.inf, "infinite values ", "corr")]:
        rows.loc[3, "x1"] = value
        with pytest.raises(DataError) as error:
            source.Source(table=rows).rows(DataSpec())
        text = str(error.value)
        assert text.startswith(says) and cure in text and "7" not in text and ("impute" in text) == (value == 1)
        assert f"the column(s) {'x2' if value == 1 else 'x1'}; " in text


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (DataSpec(label="age"), "no column age"),
        (DataSpec(features=["x0", "x9"]), "no column x9"),
        (DataSpec(features=["x0", "label"]), "among the features"),
    ],
)
def test_columns_that_the_table_lacks_are_refused(spec, says):
    with pytest.raises(DataError, match=says):
        source.Source(table=table(20)).rows(spec)


def test_text_in_a_feature_is_refused_without_quoting_it():
    rows = table(20).astype({"x0": object})
    rows.loc[2, "x0"] = "Mr Smith"
    with pytest.raises(DataError) as error:
        source.Source(table=rows).rows(DataSpec())
    assert "x0" in str(error.value) and "Smith" not in str(error.value)


def test_an_npz_and_a_folder_of_images_hold_the_same_rows(tmp_path):
    from PIL import Image

    X, y = np.random.default_rng(0).integers(0, 255, (12, 4, 4), dtype=np.uint8), np.arange(12) % 2
    np.savez(tmp_path / "rows.npz", x=X, y=y)
    for name in ("benign", "malign"):
        (tmp_path / "images" / name).mkdir(parents=True)
    for i, (image, label) in enumerate(zip(X, y, strict=True)):
        Image.fromarray(image).save(tmp_path / "images" / ("benign", "malign")[label] / f"{i:02}.png")
    archive = source.open_source(tmp_path / "rows.npz").rows(DataSpec())
    folder = source.open_source(tmp_path / "images").rows(DataSpec())
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
    few, many = (source.open_source(tmp_path / bits).rows(DataSpec()) for bits in ("8", "16"))
    np.testing.assert_allclose(many.X, few.X, atol=1e-6)
    Image.fromarray(X[0]).save(tmp_path / "16" / "a" / "mixed.png")
    with pytest.raises(DataError, match="images of 8 bits and of 16"):
        source.open_source(tmp_path / "16")


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 broken"])
def test_a_broken_npz_is_refused(tmp_path: Path, content):
    (tmp_path / "rows.npz").write_bytes(content)
    with pytest.raises(DataError, match="cannot be read"):
        source.open_source(tmp_path / "rows.npz")


def test_an_npz_that_needs_unpickling_is_refused(tmp_path):
    np.savez(tmp_path / "rows.npz", x=np.array([{}, {}], dtype=object), y=np.arange(2))
    with pytest.raises(DataError, match="cannot be read"):
        source.open_source(tmp_path / "rows.npz")


def test_an_npz_whose_features_are_not_a_table_is_refused(tmp_path):
    np.savez(tmp_path / "rows.npz", x=np.ones(30), y=np.ones(30))
    with pytest.raises(DataError, match=r"x and y .*expected \(n, \.\.\.\) features and \(n,\) labels"):
        source.open_source(tmp_path / "rows.npz")


def test_an_image_that_cannot_be_read_is_refused_without_its_name(tmp_path):
    (tmp_path / "ill").mkdir()
    (tmp_path / "ill" / "Smith.png").write_bytes(b"noise")
    with pytest.raises(DataError, match="image") as error:
        source.open_source(tmp_path)
    assert "Smith" not in str(error.value)


def test_rows_cannot_be_changed_by_a_call(hospitals):
    rows, _ = source.Source(table=hospitals[3]).prepared(DataSpec(classes=[0, 1]), 3, Policy.of("trusting"))
    with pytest.raises(ValueError, match="read-only"):
        rows.X[0] = 0


def test_held_out_rows_come_in_multiples_of_the_minimum():
    """The difference of two jobs with other holdouts is about no fewer rows than the minimum."""
    sizes = {len(source.split(40, holdout, 7)[1]) for holdout in np.linspace(0.01, 0.99, 50)}
    assert sizes == {10, 20, 30, 40}
    ten, twenty = (set(source.split(40, holdout, 7)[1]) for holdout in (0.25, 0.5))
    assert ten < twenty
    assert len(source.split(19, 0.5, 7)[1]) == 0 and len(source.split(100, 0.1, 7, step=50)[1]) == 50


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.uint32])
def test_arrays_far_from_zero_keep_their_digits(kind):
    """A table and arrays of the same numbers give the same model."""
    rng = np.random.default_rng(1)
    X = (1_600_000_000 + rng.integers(0, 40, (60, 3))).astype(kind)
    y = (X[:, 0] > 1_600_000_020).astype(int)
    rows = pd.DataFrame(X, columns=list("abc")).assign(label=y)
    settings = {"rounds": 5, "lr": 0.5, "preprocess": ["standardize"]}
    one, two = (train("v6_fedavg", {1: n}, **settings) for n in (rows, (X, y)))
    assert one["weights"] == two["weights"]
