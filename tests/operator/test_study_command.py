"""``study new``, ``study check`` and ``study accept``."""

import json
import shutil

import pytest

from v6_federated.masks import keys
from v6_federated.masks import study as pinned
from v6_federated.masks.study import Study
from v6_federated.rules.schema import Column, Schema

SHARED = Schema((Column("age", "number", 0, 120), Column("sex", "words", levels=("f", "m"))), "ill", (0, 1), n=300)


@pytest.fixture
def write(call, hospitals, tmp_path):
    """Writes a study of some hospitals; returns what ``call`` does."""

    def write(names, *options, file="study.json"):
        given = [word for name in names for word in ("--hospital", hospitals[name])]
        totals = () if "--hospital-totals" in options else ("--hospital-totals", "told")
        return call("study", "new", tmp_path / file, "--name", "sepsis", *given, *totals, *options)

    return write


@pytest.fixture
def send(folders, tmp_path):
    """Saves a study in the folders of some hospitals."""

    def send(names, file="study.json"):
        for name in names:
            shutil.copy(tmp_path / file, folders[name] / pinned.NAME)

    return send


def test_four_hospitals_agree(call, write, send, folders):
    status, lines, made, _ = write("ABCD")
    assert status == 0 and made["blocks"] == [["A", "B", "C", "D"]]
    assert not any("code" in line for line in lines)  # it is read aloud from each hospital's own file
    send("ABCD")
    codes = set()
    for name in "ABCD":
        status, lines, found, _ = call("study", "check", folders[name])
        assert status == 0 and not found["accepted"] and "not accepted yet" in lines
        assert [line.split()[0] for line in lines if "(this hospital)" in line] == [name]
        assert any(found["code"] in line for line in lines)
        codes.add(found["code"])
    [code] = codes
    for name in "ABCD":
        status, lines, _, _ = call("study", "accept", folders[name], "--code", code)
        assert status == 0 and "under trusting, jobs may still ask for plain answers" in lines[-1]
        assert pinned.accepted(folders[name]).code == code
        assert call("study", "check", folders[name])[2]["accepted"]


def test_operators_choose_whether_sums_may_tell_totals(call, write, send, folders, hospitals, tmp_path):
    given = [word for name in "ABCD" for word in ("--hospital", hospitals[name])]
    for options, says in (([], "is missing"), (["--hospital-totals", "no"], "no is not understood")):
        status, _, _, err = call("study", "new", tmp_path / "study.json", "--name", "sepsis", *given, *options)
        assert status == 2 and says in err and "there is no default" in err
        assert (
            "--hospital-totals told: all methods of sums" in err and "--hospital-totals hidden: only sums over" in err
        )
    codes = {}
    for word in ("told", "hidden"):
        _, lines, made, _ = write("ABCD", "--hospital-totals", word, file=word)
        assert made["hospital_totals"] == word and any(
            f"totals of single hospitals: {word} (" in line for line in lines
        )
        send("A", file=word)
        _, lines, found, _ = call("study", "check", folders["A"])
        assert found["hospital_totals"] == word and any(f"hospitals: {word} (" in line for line in lines)
        codes[word] = found["code"]
    assert codes["told"] != codes["hidden"]
    _, lines, accepted, _ = call("study", "accept", folders["A"], "--code", codes["hidden"])
    assert accepted["hospital_totals"] == "hidden" and any("hidden (only sums over rows" in line for line in lines)


@pytest.mark.parametrize("write_it", [str.lower, lambda code: code.replace("-", " "), lambda code: f" {code} "])
def test_a_code_may_be_typed_as_it_is_heard(call, write, send, folders, write_it):
    write("ABCD")
    send("A")
    code = call("study", "check", folders["A"])[2]["code"]
    assert call("study", "accept", folders["A"], "--code", write_it(code).replace("O", "0"))[0] == 0


def test_another_code_is_refused_and_the_group_named(call, write, send, folders):
    write("ABCD")
    send("A")
    code = call("study", "check", folders["A"])[2]["code"]
    other = code[:10] + ("A" if code[10] != "A" else "B") + code[11:]
    status, _, _, err = call("study", "accept", folders["A"], "--code", other)
    assert status == 2 and "in group 3 of 12" in err and code not in err
    status, _, _, err = call("study", "accept", folders["A"], "--code", code[:-1])
    assert status == 2 and "a code has 48 letters and digits, and 47 were typed" in err
    assert not (folders["A"] / pinned.ACCEPTED).exists()


def test_a_swapped_key_changes_the_code(call, write, send, folders, hospitals, tmp_path):
    """Whoever forwards the file could put another key into it."""
    write("ABCD")
    send("AB")
    file = folders["B"] / pinned.NAME
    stranger = keys.written(keys.public_of(keys.X25519PrivateKey.generate()))
    file.write_text(file.read_text().replace(hospitals["C"].partition("=")[2], stranger))
    codes = [call("study", "check", folders[name])[2]["code"] for name in "AB"]
    assert codes[0] != codes[1]
    assert call("study", "accept", folders["B"], "--code", codes[0])[0] == 2


def test_a_study_that_was_changed_after_acceptance_is_not_accepted(call, write, send, folders):
    write("ABCD")
    send("A")
    code = call("study", "check", folders["A"])[2]["code"]
    call("study", "accept", folders["A"], "--code", code)
    file = folders["A"] / pinned.NAME
    file.write_text(file.read_text().replace('"version": 1', '"version": 2'))
    status, lines, found, _ = call("study", "check", folders["A"])
    assert status == 0 and not found["accepted"]
    assert any("this hospital has accepted another version" in line for line in lines)


@pytest.mark.parametrize(
    ("names", "options", "blocks"),
    [
        ("ABCDEFGH", [], ["ABCDEFGH"]),
        ("ABCDEFGH", ["--block-size", "4"], ["ABCD", "EFGH"]),
        ("ABCDEFG", ["--block-size", "4"], ["ABCDEFG"]),
        ("ABCDEFG", ["--block-size", "3", "--colluders", "0"], ["ABC", "DEFG"]),
        ("ABCDEFGH", ["--block", "A,C,E,G", "--block", "B, D,F,H"], ["ACEG", "BDFH"]),
    ],
)
def test_blocks(write, names, options, blocks):
    status, _, made, _ = write(names, *options)
    assert status == 0 and ["".join(block) for block in made["blocks"]] == blocks


@pytest.mark.parametrize(
    ("names", "options", "says"),
    [
        ("ABC", [], "block 1 has 3 hospitals; it needs at least 4"),
        ("AB", ["--colluders", "0"], "needs at least 3"),
        ("AABCD", [], "--hospital A is given twice"),
        ("ABCDE", ["--block", "A,B,C,D"], "no --block names E"),
        ("ABCD", ["--block", "A,B,C,D,E"], "--block names 'E', which no --hospital does; expected A, B, C, D"),
        ("ABCDE", ["--block", "A,B,C,D", "--block", "E,A"], "--block names A twice"),
        ("ABCD", ["--block", "A,B,C,D", "--block-size", "4"], "exclude each other"),
        ("ABCD", ["--block-size", "5"], "--block-size 5 does not fit; expected 1 to 4"),
        ("ABCD", ["--block-size", "0"], "--block-size 0 does not fit"),
        ("ABCD", ["--version", "0"], "versions are whole numbers from 1"),
        ("ABCD", ["--colluders", "-1"], "colluders is -1"),
        ("ABCD", ["--schema", "nowhere.json"], "there is no file nowhere.json"),
        ("ABCD", ["--hospital", "E"], "--hospital 'E' is not understood; expected NAME=KEY"),
        ("ABCD", ["--hospital", "E=ABCD"], "--hospital E: a written public key has 56 letters"),
        ("ABCD", ["--hospital", "=ABCD"], "is not understood"),
        ("ABCD", ["--hospital", "E,F=ABCD"], "has a comma in its name"),
    ],
)
def test_a_wrong_study_is_not_written(write, tmp_path, names, options, says):
    status, _, _, err = write(names, *options)
    assert status == 2 and says in err and not (tmp_path / "study.json").exists()


def test_a_typing_error_in_a_key_is_found(write, hospitals):
    key = hospitals["E"]
    wrong = key[:-1] + ("A" if key[-1] != "A" else "B")
    status, _, _, err = write("ABCD", "--hospital", wrong)
    assert status == 2 and "--hospital E: the checksum of a written public key is wrong" in err


def test_a_study_is_not_overwritten(write):
    assert write("ABCD")[0] == 0
    status, _, _, err = write("ABCDE")
    assert status == 2 and "study.json exists already" in err


def test_the_schema_must_be_the_shared_one(call, write, send, folders, tmp_path):
    file = tmp_path / "schema.json"
    file.write_text(SHARED.shared.text())
    write("ABCD", "--schema", file)
    send("A")
    folder = folders["A"]
    assert Study.parse((folder / pinned.NAME).read_text()).schema == SHARED.shared_digest
    status, lines, found, _ = call("study", "check", folder)
    assert status == 1 and "this folder has none" in found["problems"][0]
    assert any(line.startswith("problem: ") for line in lines) and "not accepted yet" not in lines
    (folder / "schema.json").write_text(SHARED.text().replace("120", "110"))
    assert "differs from the one of the study" in call("study", "check", folder)[2]["problems"][0]
    assert call("study", "accept", folder, "--code", found["code"])[0] == 2
    (folder / "schema.json").write_text(SHARED.text())  # with what is this hospital's own
    assert call("study", "check", folder)[0] == 0
    assert call("study", "accept", folder, "--code", found["code"])[0] == 0
    (folder / "schema.json").write_text("{")
    assert "schema.json: line 1" in call("study", "check", folder)[2]["problems"][0]


def test_a_hospital_that_is_in_no_block_finds_out_in_check(call, write, send, folders):
    write("ABCD")
    send("E")
    status, lines, found, _ = call("study", "check", folders["E"])
    assert status == 1 and not found["accepted"] and "is in no block of the study" in found["problems"][0]
    assert "Nothing was computed" not in "\n".join(lines)


def test_a_hospital_without_a_key_finds_out_in_check(call, write, send, folders):
    write("ABCD")
    send("A")
    (folders["A"] / keys.NAME).unlink()
    status, _, found, _ = call("study", "check", folders["A"])
    assert status == 1 and "has no identity.key" in found["problems"][0]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no"),
        ("{", "malformed study.json: it is not JSON"),
        ("[]", "malformed study.json: it must have"),
        (b"\xff\xfe{", "is not UTF-8 text"),
    ],
)
def test_what_is_no_study_is_refused_in_one_line(call, folders, content, says):
    if content is not None:
        (folders["A"] / pinned.NAME).write_bytes(content if isinstance(content, bytes) else content.encode())
    for words in (["check", folders["A"]], ["accept", folders["A"], "--code", "A"]):
        status, _, _, err = call("study", *words)
        assert status == 2 and says in err


def test_a_name_cannot_command_a_terminal(call, write, send, folders):
    write("ABCD")
    send("A")
    file = folders["A"] / pinned.NAME
    study = json.loads(file.read_text())
    study["blocks"][0][1]["name"] = "\x1b[2J"
    file.write_text(json.dumps(study))
    status, lines, _, _ = call("study", "check", folders["A"])
    assert status == 1 and "\x1b" not in "\n".join(lines)


@pytest.fixture
def agree(call, write, send, folders):
    """Writes a version, sends it, and lets one hospital after the other accept it, until one cannot; returns why."""

    def agree(version, names, *options):
        assert write(names, "--version", version, *options, file=f"study-{version}.json")[0] == 0
        send(names, file=f"study-{version}.json")
        code = call("study", "check", folders[names[0]])[2]["code"]
        for name in names:
            status, _, _, error = call("study", "accept", folders[name], "--code", code)
            if status:
                return error
        return ""

    return agree


def new_key(call, folders, hospitals, name):
    (folders[name] / keys.NAME).unlink()
    hospitals[name] = f"{name}={call('keys', 'new', folders[name])[2]['key']}"


def test_one_lost_key_means_new_keys_for_its_whole_block(call, agree, folders, hospitals):
    assert not agree(1, "ABCDEFGH", "--block-size", "4")
    (folders["D"] / keys.NAME).unlink()
    _, lines, found, _ = call("study", "check", folders["D"])
    assert found["accepted"] and lines[-1] == "accepted, but the node refuses to take part until the problem is solved"
    hospitals["D"] = f"D={call('keys', 'new', folders['D'])[2]['key']}"
    assert "would show D alone" in agree(2, "ABCDEFGH", "--block-size", "4")
    for name in "ABC":
        new_key(call, folders, hospitals, name)
    assert not agree(3, "ABCDEFGH", "--block-size", "4")


def test_check_says_what_accept_will_refuse(call, agree, write, send, folders):
    """An operator learns it before the call, and the folder stays as it is."""
    assert not agree(1, "ABCD")
    written = (folders["A"] / pinned.LOG).read_bytes()
    for options, says in ((["--version", 2], "would show E alone"), (["--version", 1], "raise its version")):
        assert write("ABCDE", *options, file=f"{says}.json")[0] == 0
        send("AE", file=f"{says}.json")
        status, lines, found, _ = call("study", "check", folders["A"])
        assert status == 1 and not found["accepted"] and len(found["problems"]) == 1
        assert says in found["problems"][0] and not any("type it as you heard it" in line for line in lines)
        error = call("study", "accept", folders["A"], "--code", found["code"])[3]
        assert found["problems"][0] in error
        assert call("study", "check", folders["E"])[0] == 0  # E has accepted nothing before
    assert (folders["A"] / pinned.LOG).read_bytes() == written


def test_check_shows_each_problem_once(call, write, send, folders, tmp_path):
    """Too small a block and another one's folder are found twice, and a damaged log prevents acceptance only."""
    write("ABCD")
    file = tmp_path / "study.json"
    file.write_text(file.read_text().replace('"colluders": 1', '"colluders": 2'))
    send("E")
    problems = call("study", "check", folders["E"])[2]["problems"]
    assert len(problems) == 2 and "needs at least 5" in problems[0] and "is in no block" in problems[1]
    file.write_text(file.read_text().replace('"colluders": 2', '"colluders": 1'))
    send("A")
    (folders["A"] / pinned.LOG).write_text("{\n")
    found = call("study", "check", folders["A"])[2]
    assert "line 1 of cohorts.log is damaged" in found["problems"][0]
    (folders["A"] / pinned.LOG).unlink()
    assert call("study", "accept", folders["A"], "--code", found["code"])[0] == 0
    (folders["A"] / pinned.LOG).write_text("{\n")
    assert call("study", "check", folders["A"])[0] == 0


def test_hospitals_leave_and_join_in_groups(agree):
    assert not agree(1, "ABCD")
    assert "would show E alone, and a group must have at least 4 hospitals" in agree(2, "ABCDE")
    assert not agree(3, "ABCDEFGH", "--block-size", "4")
    assert "would show H alone" in agree(4, "ABCDEFG")
    assert not agree(5, "ABCD")


def test_versions_rise(agree):
    assert not agree(2, "ABCD")
    error = agree(1, "ABCD", "--colluders", "0")
    assert "has accepted version 2, and this study is version 1; raise its version" in error
