"""Archives and images that are broken, or made to fill a memory: one clear line, and nothing is unpacked before it."""

import io
import struct
import sys
import zipfile
import zlib

import numpy as np
import pytest

from v6_federated.base.vantage6_api import DataError
from v6_federated.data import opening


def refusal(path):
    """The one line with which a database is refused."""
    with pytest.raises(DataError) as refused:
        opening.open_database(path)
    text = str(refused.value)
    assert "\n" not in text and len(text) < 300
    return text


def array(values, header=None):
    """The bytes of a .npy, with another header if one is given."""
    buffer = io.BytesIO()
    np.save(buffer, values)
    whole = buffer.getvalue()
    if header is None:
        return whole
    text = header.encode().ljust(118) + b"\n"
    return whole[:8] + struct.pack("<H", len(text)) + text + whole[-values.nbytes :]


# ---- archives


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"x.npy": b"", "y.npy": b""}, "d.npz cannot be read as .npz"),
        ({"x.npy": array(np.ones((4, 2)))[:90]}, "d.npz cannot be read as .npz (ValueError)"),
        ({"x": b"no array", "y.npy": array(np.ones(4))}, "d.npz cannot be read as .npz (ValueError)"),
        ({"x.npy": array(np.array([{}, {}]))}, "with arrays of numbers or words and no Python objects"),
        (
            {"x.npy": array(np.ones(2), "{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776, 9)}")},
            "d.npz",  # more than any memory, or not as many as declared
        ),
        (
            {"x.npy": array(np.ones(2), "{'descr': '<U0', 'fortran_order': False, 'shape': (1099511627776,)}")},
            "d.npz cannot be read as .npz (ValueError)",
        ),
        ({"x.npy": array(np.ones(2), "__import__('os').abort()")}, "d.npz cannot be read as .npz (ValueError)"),
        ({f"{i}.npy": b"" for i in range(opening.MOST_MEMBERS + 1)}, "d.npz holds 1001 arrays; expected at most 1000"),
    ],
)
def test_an_archive_that_is_none_of_arrays_is_refused(tmp_path, members, says):
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert says in refusal(tmp_path / "d.npz")


@pytest.mark.parametrize("keep", [0, 1, 10, 100, 300, 600])
def test_an_archive_that_ends_early_is_refused(tmp_path, keep):
    np.savez(tmp_path / "d.npz", x=np.ones((30, 2)), y=np.ones(30))
    whole = (tmp_path / "d.npz").read_bytes()
    (tmp_path / "d.npz").write_bytes(whole[:keep])
    assert refusal(tmp_path / "d.npz") == (
        "d.npz cannot be read as .npz (broken archive); save it again with numpy.savez"
    )


@pytest.mark.parametrize("at", range(0, 700, 23))
def test_an_archive_with_a_changed_byte_is_refused_or_has_the_same_arrays(tmp_path, at):
    X, y = np.arange(60.0).reshape(30, 2), np.arange(30) % 2
    np.savez_compressed(tmp_path / "d.npz", x=X, y=y)
    whole = bytearray((tmp_path / "d.npz").read_bytes())
    whole[at % len(whole)] ^= 255
    (tmp_path / "d.npz").write_bytes(whole)
    try:
        found = opening.open_database(tmp_path / "d.npz")
        np.testing.assert_array_equal(found.X, X)
        np.testing.assert_array_equal(found.y, y)
    except DataError as error:
        assert "\n" not in str(error) and "d.npz" in str(error)


def peak():
    """The largest memory of this process so far, in bytes."""
    resource = pytest.importorskip("resource")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def zeros(path, size):
    """Write an archive whose member x.npy unpacks to ``size`` zeros, 1000 times as many bytes as the file has."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        head = array(np.zeros((1, 2), np.uint8))[:-2]
        member.write(head.replace(b"(1, 2), }" + b" " * 12, f"({size // 2}, 2), }}".encode().ljust(21)))
        for _ in range(size // 2**20):
            member.write(bytes(2**20))


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    zeros(tmp_path / "d.npz", 2**29)
    before = peak()
    text = refusal(tmp_path / "d.npz")
    assert "times as large when unpacked, like an archive made to fill a memory; expected at most 200 times" in text
    assert peak() - before < 2**27


def test_a_size_that_no_memory_has_is_refused_as_declared(tmp_path, monkeypatch):
    np.savez(tmp_path / "d.npz", x=np.ones((30, 2)), y=np.ones(30))
    monkeypatch.setattr(opening, "MOST_BYTES", 500)
    assert refusal(tmp_path / "d.npz").startswith("d.npz holds 976 bytes when unpacked; expected at most 500")


def test_a_table_of_mostly_zeros_may_be_packed_tightly(tmp_path):
    X, y = np.zeros((1000, 2000)), np.arange(1000) % 2
    np.savez_compressed(tmp_path / "d.npz", x=X, y=y)
    assert X.nbytes > opening.MOST_RATIO * (tmp_path / "d.npz").stat().st_size
    assert opening.open_database(tmp_path / "d.npz").X.shape == X.shape


# ---- images


def image(path, size=(4, 4), **options):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size).save(path, **options)
    return path


def bomb(width, height):
    """A .png of a few bytes that declares many pixels."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(8193, 8192), (9500, 9500), (20_000, 20_000), (2**31 - 1, 2**31 - 1)])
def test_an_image_of_too_many_pixels_is_refused_before_it_is_read(tmp_path, recwarn, size):
    """Pillow warns of the second, and refuses the third with an error of its own."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "Smith.png").write_bytes(bomb(*size))
    before = peak()
    assert refusal(tmp_path) == "an image of more than 67108864 pixels; expected smaller ones"
    assert peak() - before < 2**27 and not recwarn.list


def test_images_of_two_sizes_are_refused_before_the_second_is_read(tmp_path):
    image(tmp_path / "a" / "1.png")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "2.png").write_bytes(bomb(8000, 8000))
    assert refusal(tmp_path) == "images of different sizes; expected one size"


def test_pixels_of_all_images_together_are_bounded(tmp_path, monkeypatch):
    for i in range(3):
        image(tmp_path / "a" / f"{i}.png")
    monkeypatch.setattr(opening, "MOST_BYTES", 47)
    assert refusal(tmp_path) == "the images have more than 47 pixels in all; expected fewer or smaller ones"
    monkeypatch.setattr(opening, "MOST_IMAGES", 2)
    assert refusal(tmp_path) == "3 images in the folder; expected at most 2"


@pytest.mark.parametrize("ending", ["png", "jpg", "bmp"])
def test_an_image_that_ends_early_or_has_changed_bytes_is_refused_or_read(tmp_path, ending):
    file = image(tmp_path / "a" / f"Smith.{ending}", (16, 16))
    whole = file.read_bytes()
    spoilt = [whole[:n] for n in range(0, len(whole), 7)]
    spoilt += [whole[:i] + bytes([whole[i] ^ 255]) + whole[i + 1 :] for i in range(0, len(whole), 5)]
    refused = 0
    for content in spoilt:
        file.write_bytes(content)
        try:
            assert opening.open_database(tmp_path).X.ndim == 3
        except DataError as error:
            refused += 1
            assert "Smith" not in str(error) and "\n" not in str(error)
    assert refused > len(spoilt) / 3


@pytest.mark.parametrize("content", [{}, {"a/notes.txt": "x"}, {"1.png": "x"}, {"a/b/1.png": "x"}])
def test_a_folder_without_images_is_refused(tmp_path, content):
    for name, text in content.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert refusal(tmp_path) == "no images in the folder; expected CLASS/NAME.png, a folder for each class"
