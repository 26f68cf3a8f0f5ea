"""The benchmarks' data are downloaded, checked and read."""

import functools
import gzip
import hashlib
import http.server
import json
import struct
import threading
import zipfile

import numpy as np
import pytest
from benchmarks import download, mcmahan2017_shakespeare

from v6_federated import SafeError


@pytest.fixture
def home(tmp_path):
    """A server of four idx files; its address, their arrays, their digests."""
    rng = np.random.default_rng(1)
    arrays, digests = {}, []
    folder = tmp_path / "home"
    folder.mkdir()
    for key, file in download.FILES.items():
        shape = (6, 4, 4) if key.startswith("x") else (6,)
        arrays[key] = rng.integers(0, 256, shape).astype(np.uint8)
        idx = struct.pack(f">I{len(shape)}I", 2048 + len(shape), *shape) + arrays[key].tobytes()
        (folder / file).write_bytes(gzip.compress(idx))
        digests.append(hashlib.sha256(idx).hexdigest())

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", arrays, digests
        server.shutdown()


def test_data_are_downloaded_and_checked(home, tmp_path):
    url, arrays, digests = home
    (tmp_path / "data").mkdir()
    path = download.images("mnist", tmp_path / "data", url, digests)
    with np.load(path, allow_pickle=False) as found:
        assert set(found.files) == set(arrays)
        for key, array in arrays.items():
            np.testing.assert_array_equal(found[key], array)
    with pytest.raises(SafeError, match=r"train-images-idx3-ubyte.gz is not the expected file, whose sha256 is"):
        download.images("mnist", tmp_path / "other", url)
    with pytest.raises(SafeError, match=r"nothing/train-images-idx3-ubyte.gz cannot be read"):
        download.images("mnist", tmp_path / "other", f"{url}nothing/", digests)
    assert not (tmp_path / "other").exists()


def test_golubs_patients_are_read_from_rs_format(tmp_path):
    """A list of x, a matrix by columns, and y, a factor, as R writes it in ASCII."""
    text = "262153 {} {}"  # a string: its length and itself
    name = "1026 1 " + text  # of what follows in a list
    x = f"526 6 1 2 3 4 5 6.5 {name.format(3, 'dim')} 13 2 2 3 254"
    levels = f"{name.format(6, 'levels')} 16 2 {text.format(3, 'ALL')} {text.format(3, 'AML')}"
    y = f"781 2 2 1 {levels} {name.format(5, 'class')} 16 1 {text.format(6, 'factor')} 254"
    names = f"{name.format(5, 'names')} 16 2 {text.format(1, 'x')} {text.format(1, 'y')} 254"
    file = tmp_path / "golub.RData"
    file.write_text(f"RDA2 A 2 196865 131840 {name.format(5, 'golub')} 531 2 {x} {y} {names} 254 ".replace(" ", "\n"))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    with np.load(download.golub(tmp_path, file.as_uri(), digest), allow_pickle=False) as found:
        np.testing.assert_array_equal(found["x"], np.array([[1, 3, 5], [2, 4, 6.5]], np.float32))
        assert found["y"].tolist() == [1, 0] and found["x"].dtype == np.float32
    with pytest.raises(SafeError, match="is not the expected file"):
        download.golub(tmp_path, file.as_uri())


def test_shakespeares_roles_are_read_from_the_plays(tmp_path):
    """Speeches of two are a role of their own, stage directions go, roles of one line too; rows follow each other."""
    speech = "<SPEECH>{}</SPEECH>"
    long_lines = "".join(f"<LINE>Line  {i} of<STAGEDIR>Aside</STAGEDIR> many, <i/>all alike.</LINE>" for i in range(20))
    play = "<PLAY><TITLE>A Play</TITLE>" + "".join(
        speech.format(words)
        for words in (
            f"<SPEAKER>One</SPEAKER>{long_lines}",
            "<SPEAKER>two</SPEAKER><LINE>No.</LINE>",
            "<SPEAKER>One</SPEAKER><SPEAKER>Two</SPEAKER><LINE>Yes.</LINE><LINE>Yes!</LINE>",
        )
    )
    archive = tmp_path / "plays.zip"
    with zipfile.ZipFile(archive, "w") as plays:
        plays.writestr("a.xml", play + "</PLAY>")
        plays.writestr("play.dtd", "")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    file = download.shakespeare(tmp_path, archive.as_uri(), digest)
    roles = json.loads(gzip.decompress(file.read_bytes()))
    assert list(roles) == ["A Play|ONE", "A Play|ONE & TWO"]
    assert roles["A Play|ONE"][3] == "Line 3 of many, all alike." and roles["A Play|ONE & TWO"] == ["Yes.", "Yes!"]
    dataset = mcmahan2017_shakespeare.load(file)
    X, y = dataset.rows
    text = "\n".join(roles["A Play|ONE"][:16])
    characters = sorted(set("".join(map("\n".join, roles.values()))))
    assert X.shape == ((len(text) - 1) // 80, 80) and dataset.roles.tolist() == [0] * len(X)
    assert "".join(characters[c] for c in X.flatten()) == text[: X.size]
    assert [characters[c] for c in y] == [text[80 * (i + 1)] for i in range(len(y))]
    with pytest.raises(SafeError, match="is not the expected file"):
        download.shakespeare(tmp_path, archive.as_uri())
    assert len(dataset.test[1]) == 1
    for content in (
        b"no",
        gzip.compress(b"{}", mtime=0),
        gzip.compress(b'{"a": ["b"]}', mtime=0),
        gzip.compress(b"[]", mtime=0)[:-9] + b"123456789",
    ):
        archive.with_suffix(".json.gz").write_bytes(content)
        with pytest.raises(
            SafeError, match=r"plays.json.gz is not gzipped JSON of roles and their lines. Make one with"
        ):
            mcmahan2017_shakespeare.load(archive.with_suffix(".json.gz"))


def test_a_character_that_only_test_rows_have(start, tmp_path):
    """As in Shakespeare's plays, whose characters the benchmark names."""
    words = [f"Line {i} of many, all alike." for i in range(40)]
    roles = {f"A Play|{k}": words[k:] + words[:k] for k in range(20)}
    roles["A Play|20"] = words[:32] + ["!" * 100] * 8
    file = tmp_path / "shakespeare.json.gz"
    file.write_bytes(gzip.compress(json.dumps(roles).encode()))
    dataset = mcmahan2017_shakespeare.load(file)
    assert set(dataset.test[1]) - set(dataset.rows[1])
    process = start("mcmahan2017_shakespeare", "--data", file, "--out", tmp_path / "out")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert (
        "| roles | 1 | 10 | 164 | not in 3 |" in (tmp_path / "out" / "mcmahan2017_shakespeare-reduced.md").read_text()
    )


def served(folder, files):
    """The address of a folder of files, and their digests."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return f"{folder.as_uri()}/", {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}


def test_tables_of_hospitals_are_put_together(tmp_path):
    """Numbers stay as they are written, a question mark is a missing value; patients follow the file of their rows."""
    files = {"a.data": "age, ca, num\n63.0,?,0\n", "b.data": "age, ca, num\n.5,1,3\n"}
    url, digests = served(tmp_path, files)
    by_hospital = {name[0]: digest for name, digest in digests.items()}
    path = download.heart_disease(tmp_path, url + "{}.data", by_hospital)
    assert path.read_text() == "hospital,age,ca,num,target\na,63.0,,0,0\nb,.5,1,3,1\n"
    rows = "pid,x,E,T\nP2,1,0.0,9.0\nP1,0,1.0,5.0\nP0,0,1.0,5.0\n"
    parts = "pid,fold,fold2\nP1,train,train_4\nP2,test,test_0\n"
    url, digests = served(tmp_path, {"rows.csv": rows, "split/parts.csv": parts})
    path = download.tcga_brca(tmp_path, url, digests)
    assert path.read_text() == "center,fold,x,E,T\n0,test,1,0.0,9.0\n4,train,0,1.0,5.0\n"
    with pytest.raises(SafeError, match="is not the expected file"):
        download.tcga_brca(tmp_path, url, dict.fromkeys(digests, "0"))
