"""``python -m benchmarks download --data FOLDER``: the benchmarks' data from their original sites, checked."""

import gzip
import hashlib
import http.client
import io
import json
import struct
import urllib.error
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import rdata

from v6_federated.base.errors import SafeError

HOMES = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion_mnist": "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
}
FILES = {  # gzipped, in the idx format
    "x_train": "train-images-idx3-ubyte.gz",
    "y_train": "train-labels-idx1-ubyte.gz",
    "x_test": "t10k-images-idx3-ubyte.gz",
    "y_test": "t10k-labels-idx1-ubyte.gz",
}
SHA256 = {  # of the idx files, unpacked
    "mnist": (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    "fashion_mnist": (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
}
# Bosak's XML of all plays, "Shakespeare 2.00"
PLAYS = (
    "https://raw.githubusercontent.com/samdutton/sonnet-search/fec5c0f3d9f1a1a0c71ba72ebc5e34b891080895/"
    "originals/shaks200.zip"
)
PLAYS_SHA256 = "97ec6deee68fc595f2f817f901aa9f791d641b7a64d228a2f4c155cba4006bc2"
# Golub et al. 1999: 72 patients, 7,129 gene expressions, in R's format
GOLUB = "https://raw.githubusercontent.com/ramhiser/datamicroarray/a95f6f68ed3debf48ee54f198435fa12aa655b16/data/golub.RData"
GOLUB_SHA256 = "594f5507597fb2352d210c803a88a218fbf6d1f2705372029e5738815216747b"
# UCI's heart disease data of four hospitals, with names of columns
HEART = (
    "https://raw.githubusercontent.com/peter-biz/AI-Project-1/ae41f9ba5d2f233e65f458d928f608cc73ece998/"
    "heart%2Bdisease/processed.{}.data"
)
HEART_SHA256 = {
    "cleveland": "a597fa0641f4559d721092562729d0feb2541e536f9319895e8096c182c7657c",
    "hungarian": "df272dfbbb07dc1f111a4513d8d3ede423c6376291f166951b04ee0a585f5d34",
    "switzerland": "a8a346fba9f44620c9d0befab8f180f48bb8937e449e415c77f0873045b1e8ec",
    "va": "203937eea74ac67b519c00194c712b74ee14cf2748d3550d4798c91cfb59ee31",
}
# FLamby's Fed-TCGA-BRCA: 1,088 patients, and which of six regions and which part each belongs to
TCGA = "https://raw.githubusercontent.com/owkin/FLamby/edacf54d5211520583b0133d55ac39b6fda8324b/flamby/datasets/fed_tcga_brca/"
TCGA_SHA256 = {
    "brca.csv": "07cb53423f7d579d33cfdbf2cba57b2aee75318b85866c68ce39a75b1f1ba020",
    "dataset_creation_scripts/train_test_split.csv": "1249c6543a4060ff0fdaf8510fc37017755836db6c9fc5e6af96057c36510990",
}
NAMES = (*HOMES, "shakespeare", "golub", "heart_disease", "tcga_brca")
SECONDS = 60  # without a byte


def download(name: str, folder: Path) -> Path:
    """Download a data set to a folder.

    Raises:
        SafeError: its site does not answer, or sends other bytes than expected.
    """
    folder.mkdir(parents=True, exist_ok=True)
    others: Mapping[str, Callable[[Path], Path]] = {
        "shakespeare": shakespeare,
        "golub": golub,
        "heart_disease": heart_disease,
        "tcga_brca": tcga_brca,
    }
    return others[name](folder) if name in others else images(name, folder)


def images(name: str, folder: Path, home: str | None = None, digests: Sequence[str] | None = None) -> Path:
    """``NAME.npz``: x_train, y_train, x_test, y_test."""
    arrays: dict[str, Any] = {}
    for (key, file), expected in zip(FILES.items(), digests or SHA256[name], strict=True):
        arrays[key] = _array(_checked((home or HOMES[name]) + file, expected, gzip.decompress))
    part = folder / f"{name}.part.npz"
    np.savez_compressed(part, **arrays)
    return part.replace(folder / f"{name}.npz")


def shakespeare(folder: Path, url: str = PLAYS, digest: str = PLAYS_SHA256) -> Path:
    """``shakespeare.json.gz``: the lines of each speaking role with two or more lines in a play."""
    roles: dict[str, list[str]] = {}
    with zipfile.ZipFile(io.BytesIO(_checked(url, digest))) as plays:
        for name in sorted(name for name in plays.namelist() if name.endswith(".xml")):
            play = ElementTree.fromstring(plays.read(name))
            for speech in play.iter("SPEECH"):
                speakers = [
                    " ".join(speaker.text.upper().split()) for speaker in speech.findall("SPEAKER") if speaker.text
                ]
                lines = [
                    " ".join("".join([line.text or "", *(part.tail or "" for part in line)]).split())
                    for line in speech.findall("LINE")
                ]  # without the stage directions in them
                if speakers:
                    role = roles.setdefault(f"{play.findtext('TITLE')}|{' & '.join(speakers)}", [])
                    role += filter(None, lines)
    part = folder / "shakespeare.part.json.gz"
    with gzip.open(part, "wt", encoding="utf-8") as stream:
        json.dump({role: lines for role, lines in roles.items() if len(lines) > 1}, stream)
    return part.replace(folder / "shakespeare.json.gz")


def golub(folder: Path, url: str = GOLUB, digest: str = GOLUB_SHA256) -> Path:
    """``golub.npz``: x (72, 7129) gene expressions, y (72,) 1 for the patients with AML, 0 for ALL."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Unknown encoding")  # the names are ASCII
        found = rdata.conversion.convert(rdata.parser.parse_data(_checked(url, digest)))["golub"]
    part = folder / "golub.part.npz"
    labels = np.asarray(found["y"]) == "AML"
    np.savez_compressed(part, x=np.asarray(found["x"], np.float32), y=labels.astype(np.uint8))
    return part.replace(folder / "golub.npz")


def heart_disease(folder: Path, url: str = HEART, digests: Mapping[str, str] = HEART_SHA256) -> Path:
    """``heart_disease.csv``: hospital, 13 features, num, and target, which is 1 if num is above 0."""
    parts = {hospital: _table(_checked(url.format(hospital), digest)) for hospital, digest in digests.items()}
    table = pd.concat(parts, names=["hospital"]).reset_index("hospital")
    return _written(table.assign(target=(table["num"].astype(int) > 0).astype(int)), folder / "heart_disease.csv")


def tcga_brca(folder: Path, url: str = TCGA, digests: Mapping[str, str] = TCGA_SHA256) -> Path:
    """``tcga_brca.csv``: center (0 to 5), fold (train or test), 39 features, E and T."""
    rows, parts = (_table(_checked(url + name, digest)) for name, digest in digests.items())
    table = rows.merge(parts, on="pid")
    center = table.pop("fold2").str[-1]  # train_0, ...
    table.insert(0, "fold", table.pop("fold"))
    table.insert(0, "center", center)
    return _written(table.drop(columns="pid"), folder / "tcga_brca.csv")


def _table(content: bytes) -> pd.DataFrame:
    """A CSV file, its numbers as they are written."""
    return pd.read_csv(io.BytesIO(content), dtype=str, na_values="?", skipinitialspace=True)


def _written(table: pd.DataFrame, path: Path) -> Path:
    part = path.with_suffix(".part.csv")
    table.to_csv(part, index=False)
    return part.replace(path)


def _checked(url: str, expected: str, unpack: Callable[[bytes], bytes] = bytes) -> bytes:
    """The content of an address, unpacked. Raises SafeError unless it has the digest."""
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as stream:
            content = unpack(stream.read())
    except (OSError, EOFError, zlib.error, urllib.error.URLError, http.client.HTTPException) as error:
        raise SafeError(f"{url} cannot be read ({error}). Check the connection and run the command again") from None
    if hashlib.sha256(content).hexdigest() != expected:
        raise SafeError(
            f"{url} is not the expected file, whose sha256 is {expected} when unpacked. Run the command again, or "
            "put a copy of the data into the folder yourself"
        )
    return content


def _array(idx: bytes) -> np.ndarray:
    """A file in the idx format, unsigned bytes: 0, 0, 8, dimensions, sizes, values."""
    dimensions = idx[3]
    shape = struct.unpack(f">{dimensions}I", idx[4 : 4 + 4 * dimensions])
    return np.frombuffer(idx, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
