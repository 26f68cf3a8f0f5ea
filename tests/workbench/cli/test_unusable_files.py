"""Files that no command can use: one line, which says what is wrong, and no traceback."""

import json
import zipfile

import numpy as np
import pytest
from helpers import table

ROWS = table(60).to_csv(index=False)
LINES = ROWS.splitlines(keepends=True)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """The text of a result.json."""
    from v6_workbench.cli.main import main

    folder = tmp_path_factory.mktemp("result")
    (folder / "rows.csv").write_text(ROWS)
    run = ["run", "fedavg", "--data", str(folder / "rows.csv"), "--nodes", "2", "--rounds", "2"]
    assert main([*run, "--out", str(folder / "r")]) == 0
    return (folder / "r" / "result.json").read_text()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (ROWS.encode("utf-16"), "holds NUL bytes, as UTF-16 does; save it as CSV UTF-8"),
        (ROWS.encode("utf-16-le"), "holds NUL bytes, as UTF-16 does; save it as CSV UTF-8"),
        (ROWS.replace("1", "1\0", 1).encode(), "holds NUL bytes, as UTF-16 does; save it as CSV UTF-8"),
        (ROWS.replace("label", "l\xe4nge").encode("latin-1"), "is not in UTF-8; save it as CSV UTF-8"),
        (b"", "is empty; expected a file with rows"),
        (b"\n\n", "holds empty lines only; expected the names of the columns, then rows"),
        (LINES[0].encode(), "rows; expected"),
        (b'"' + ROWS.encode(), "cannot be read as csv at line 1; expected two quotes around each quoted value"),
        ((ROWS + "1,2,3,4,5,6,7\n").encode(), f"as csv at line {len(LINES) + 1}; expected two quotes"),
        ("".join(LINES[1:]).encode(), "seems to have no header: the names of some columns are numbers"),
        (b"\x89PNG\r\n\x1a\n", "is not in UTF-8"),
    ],
)
def test_a_table_that_cannot_be_read(refused, result, tmp_path, content, says):
    (tmp_path / "result.json").write_text(result)
    file = tmp_path / "rows.csv"
    file.write_bytes(content)
    says = {LINES[0].encode(): ["holds 0 rows", "has no rows"]}.get(content, [says, says])
    commands = (["run", "fedavg"], ["predict", tmp_path, "--out", tmp_path / "p.csv"])
    for command, text in zip(commands, says, strict=True):
        refused(text, *command, "--data", file)
    refused(says[0], "compare", "fedavg", "centralized:fedavg", "--data", file)


def test_a_table_with_a_mark_of_its_encoding_is_read(call, tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS, encoding="utf-8-sig")
    assert call("run", "fedavg", "--data", tmp_path / "rows.csv", "--rounds", 1, "--features", "x0,x1")[0] == 0


@pytest.mark.parametrize("separators", [";.", "\t.", ";,", "\t,"])
def test_a_table_with_other_separators_is_the_same_table(call, tmp_path, separators):
    between, decimal = separators
    (tmp_path / "rows.csv").write_text(ROWS)
    (tmp_path / "other.csv").write_text(ROWS.replace(",", between).replace(".", decimal))
    lines = []
    for name in ("rows.csv", "other.csv"):
        status, line, _ = call("run", "fedavg", "--nodes", 2, "--rounds", 1, "--data", tmp_path / name)
        assert status == 0
        lines.append({key: value for key, value in line.items() if key != "seconds"})
    assert lines[0] == lines[1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text[: len(text) // 2], "is not a result; expected a result.json that"),
        (lambda text: "", "is not a result; expected"),
        (lambda text: "[1, 2]", "is not a result (it should be a valid dictionary)"),
        (lambda text: "[" * 10**5, "is not a result (JSON of more than 100 levels"),
        (lambda text: '{"a":' * 10**5, "is not a result (JSON of more than 100 levels"),
        (lambda text: "1" * 10**4, "is not a result"),
        (lambda text: text.replace('"seed": 0', '"seed": 1' + "0" * 400), "a whole number of more than 64 bits"),
        (
            lambda text: text.replace('"features": 4,', '"features": 1000000000000,'),
            "model.features: it should be less",
        ),
    ],
)
def test_a_result_that_cannot_be_used(refused, result, tmp_path, change, says):
    (tmp_path / "rows.csv").write_text(ROWS)
    file = tmp_path / "r.json"
    file.write_text(change(result))
    assert file.read_text() != result
    rows = ["--data", tmp_path / "rows.csv"]
    refused(says, "report", file)
    refused(says, "export", file, "--to", tmp_path / "m.npz")
    refused(says, "predict", file, *rows, "--out", tmp_path / "p.csv")
    refused(says, "run", "fedavg", *rows, "--nodes", 2, "--rounds", 4, "--resume", file)


@pytest.mark.parametrize("name", ["m.npz", "m.safetensors", "m.pt"])
@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04", (2**62).to_bytes(8, "little") + b"{}"])
def test_a_model_that_cannot_be_read(refused, tmp_path, name, content):
    (tmp_path / "rows.csv").write_text(ROWS)
    (tmp_path / name).write_bytes(content)
    predict = ["predict", tmp_path / name, "--data", tmp_path / "rows.csv", "--out", tmp_path / "p.csv"]
    refused(f"{name} cannot be read" if name == "m.npz" else f"{name} is not an exported model (", *predict)


@pytest.mark.parametrize("about", ["[" * 10**5, "[]", "{}", '{"arrays": ["w"]}', '{"arrays": ["weights"], "data": []}'])
def test_a_model_that_says_something_else_about_itself(refused, tmp_path, about):
    (tmp_path / "rows.csv").write_text(ROWS)
    np.savez(tmp_path / "m.npz", weights=np.array(["a"]), about=np.frombuffer(about.encode(), dtype=np.uint8))
    predict = ["predict", tmp_path / "m.npz", "--data", tmp_path / "rows.csv", "--out", tmp_path / "p.csv"]
    refused("m.npz is not an exported model (", *predict)


def test_a_result_whose_arrays_are_no_model(refused, result, tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS)
    found = json.loads(result)
    found["weights"]["shapes"] = {"other": found["weights"]["shapes"]["weights"]}
    (tmp_path / "result.json").write_text(json.dumps(found))
    says = "the result has no model, but other arrays; expected a result.json as it was written"
    refused(says, "predict", tmp_path, "--data", tmp_path / "rows.csv", "--out", tmp_path / "p.csv")


def test_an_archive_made_to_fill_the_memory(refused, result, tmp_path):
    (tmp_path / "result.json").write_text(result)
    with zipfile.ZipFile(tmp_path / "d.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(300 * 2**20))
    says = "d.npz is 1028 times as large when unpacked"
    refused(says, "run", "fedavg", "--data", tmp_path / "d.npz")
    refused(says, "predict", tmp_path, "--data", tmp_path / "d.npz", "--out", tmp_path / "p.csv")
    refused(says, "predict", tmp_path / "d.npz", "--data", "digits", "--out", tmp_path / "p.csv")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (
            "[" * 5000,
            " is refused: JSON of more than 100 levels; expected lists and objects that are nested less deeply",
        ),
        ("[" * 200 + "]" * 200, " is refused: JSON of more than 100 levels"),
        ("1" * 400, " is refused: JSON with a whole number of more than 64 bits; expected smaller numbers"),
        ("[" + "1," * 5000 + "1]", "... is refused"),
    ],
)
def test_a_setting_that_no_setting_can_be(refused, value, says):
    refused(says, "run", "fedavg", "--data", "digits", "--set", f"lr={value}")
    refused(says, "compare", "fedavg", f"fedavg:lr={value}", "--data", "digits")


def test_a_name_in_a_file_cannot_command_the_terminal(call, result, tmp_path):
    (tmp_path / "result.json").write_text(result)
    (tmp_path / "rows.csv").write_text(ROWS.replace("x1", "x1\x1b[2J", 1))
    status, _, said = call("predict", tmp_path, "--data", tmp_path / "rows.csv", "--out", tmp_path / "p.csv")
    assert status == 2 and "no column x1 in the table" in said and "\x1b" not in said
