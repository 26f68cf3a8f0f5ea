"""Studies: their form, their code, and what a hospital accepts after what it has accepted before."""

import dataclasses
import json
import os

import pytest
import second

from v6_federated.base.errors import SafeError
from v6_federated.base.vantage6_api import NodePermissionException
from v6_federated.masks import keys
from v6_federated.masks.study import Hospital, Study, accept, accepted, masked_study


@pytest.fixture
def study(study_of):
    return study_of([0, 1, 2, 3], [4, 5, 6, 7])


NAMED = ("name", "version", "colluders", "hospitals_a_person", "schema", "hospital_totals")


def change(study, **kwargs):
    return dataclasses.replace(study, **kwargs)


# ---- form


def test_a_study_is_read_as_it_was_written(study):
    assert Study.parse(study.text()) == study
    assert Study.parse(change(study, schema="0" * 64).text()).schema == "0" * 64


def test_vectors(vectors):
    given = vectors["study"]
    hospitals = [Hospital(h["name"], bytes.fromhex(h["S"])) for h in vectors["hospitals"]]
    blocks = tuple(tuple(hospitals[i] for i in block) for block in given["blocks"])
    said = {name: given[name] for name in NAMED}
    study = Study(blocks=blocks, **said)
    study.check(3)
    assert study.digest.hex() == given["digest"]
    assert study.code == given["code"]
    assert [len(part) for part in study.code.split("-")] == [4] * 12
    assert masked_study(vectors["job"]).hex() == vectors["masked_study"]


def test_the_order_in_the_file_does_not_matter_and_everything_else_does(study):
    turned = change(study, blocks=tuple(block[::-1] for block in study.blocks[::-1]))
    assert turned.digest == study.digest
    first, second_ = study.blocks
    others = [
        change(study, name="Other"),
        change(study, version=2),
        change(study, colluders=0),
        change(study, schema="0" * 64),
        change(study, hospital_totals="hidden"),
        change(study, hospitals_a_person=2),
        change(study, blocks=(first + second_,)),
        change(study, blocks=(first[1:], (*second_, first[0]))),
        change(study, blocks=((Hospital("H9", first[0].key), *first[1:]), second_)),
    ]
    assert len({study.code, *(other.code for other in others)}) == len(others) + 1


def test_the_block_of_a_hospital_is_sorted_by_key(study):
    block = study.block_of(study.blocks[1][2].key)
    assert set(block) == set(study.blocks[1])
    assert [h.key for h in block] == sorted(h.key for h in block)
    with pytest.raises(NodePermissionException, match="in no block of the study 'Trial'"):
        study.block_of(bytes(32))


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (lambda s: "{", "not JSON"),
        (
            lambda s: "[]",
            "must have blocks, colluders, hospital_totals, hospitals_a_person, name, protocol, schema, version",
        ),
        (lambda s: s | {"more": 1}, "nothing else"),
        (lambda s: s | {"protocol": "v6-federated/secagg/2"}, "protocol must be v6-federated/secagg/1"),
        (lambda s: s | {"blocks": [1]}, "list of lists"),
        (lambda s: s | {"version": True}, "whole numbers"),
        (lambda s: s | {"version": 1.0}, "whole numbers"),
        (lambda s: s | {"schema": 1}, "schema a text or null"),
        (lambda s: s | {"hospitals_a_person": True}, "hospitals_a_person must be whole numbers"),
        (lambda s: s | {"hospital_totals": 1}, "hospital_totals must be told or hidden"),
        (lambda s: s | {"more": s.pop("hospital_totals")}, "does not say hospital_totals, which operators now choose"),
        (lambda s: s | {"blocks": [[{"name": "a"}]]}, "name and key, and nothing else"),
        (lambda s: s | {"blocks": [[{"name": "a", "key": 3}]]}, "must be texts"),
        (lambda s: s | {"blocks": [[{"name": "a", "key": "ABC"}]]}, "key of the hospital 'a': .* 56 letters"),
    ],
)
def test_a_malformed_study_is_refused_with_one_line(study, edit, error):
    edited = edit(json.loads(study.text()))
    with pytest.raises(SafeError, match=error) as refused:
        Study.parse(edited if isinstance(edited, str) else json.dumps(edited))
    assert "\n" not in str(refused.value)


def test_check(study):
    study.check(3)
    (a, *rest), other = study.blocks
    for wrong, error in [
        (change(study, version=0), "version is 0"),
        (change(study, version=2**53), "whole numbers from 1"),
        (change(study, colluders=-1), "colluders is -1"),
        (change(study, colluders=2), "block 1 has 4 hospitals; it needs at least 5"),
        (change(study, blocks=()), "no block"),
        (change(study, blocks=(tuple(rest), other)), "block 1 has 3 hospitals"),
        (change(study, blocks=((a, a, *rest), other)), "the hospital H0 is in the study 2 times"),
        (change(study, blocks=((a, Hospital("H8", a.key), *rest), other)), "the key .* is in the study 2 times"),
        (change(study, blocks=((a, *rest), (a, *other))), "H0 is in the study 2 times"),
        (change(study, name=" "), "a name in the study is empty"),
        (change(study, name="a\nb"), "control character"),
        (change(study, blocks=((Hospital("", a.key), *rest), other)), "a name in the study is empty"),
        (change(study, blocks=((Hospital("H0", bytes(32)), *rest), other)), "small order"),
        (change(study, schema="abc"), "64 hexadecimal digits"),
        (change(study, hospitals_a_person=0), "hospitals_a_person is 0; a person may be at 1 to 8 hospitals"),
        (change(study, hospitals_a_person=9), "hospitals_a_person is 9; a person may be at 1 to 8 hospitals"),
        (change(study, hospital_totals="Told"), "hospital_totals is 'Told'; it must be told or hidden"),
    ]:
        with pytest.raises(SafeError, match=error):
            wrong.check(3)


def test_three_hospitals_suffice_without_colluders(study_of):
    study_of([0, 1, 2], colluders=0).check(3)


# ---- accepting


def test_an_accepted_study_is_found_again(study, folders):
    assert accepted(folders[0]) is None
    accept(folders[0], study, 3)
    assert accepted(folders[0]) == study
    accept(folders[0], study, 3)  # changes nothing
    assert len((folders[0] / "cohorts.log").read_text().splitlines()) == 1


def test_a_study_that_was_not_accepted_stops_the_node(study, folders):
    (folders[0] / "study.json").write_text(study.text())
    with pytest.raises(NodePermissionException, match="was not accepted; compare its code"):
        accepted(folders[0])


def test_a_changed_study_stops_the_node(study, folders):
    accept(folders[0], study, 3)
    (folders[0] / "study.json").write_text(change(study, colluders=0).text())
    with pytest.raises(NodePermissionException, match="differs from the one that was accepted"):
        accepted(folders[0])
    (folders[0] / "study.json").write_text("{")
    with pytest.raises(NodePermissionException, match="malformed study.json"):
        accepted(folders[0])


def without_totals(text: str) -> str:
    """A study.json, or a line of cohorts.log, as it was before operators had to choose."""
    found = json.loads(text)
    found.get("study", found).pop("hospital_totals")
    return json.dumps(found)


def test_a_study_of_before_there_was_a_choice_says_what_to_do_and_still_counts(study, study_of, folders):
    accept(folders[0], study, 3)
    for name in ("study.json", "cohorts.log"):
        file = folders[0] / name
        file.write_text(without_totals(file.read_text()) + "\n")
    says = r"does not say hospital_totals.*write version 2 with .*--version 2 --hospital-totals told\|hidden"
    with pytest.raises(NodePermissionException, match=says):
        accepted(folders[0])
    with pytest.raises(SafeError, match="accepted version 1, and this study is version 1"):
        accept(folders[0], study, 3)
    with pytest.raises(SafeError, match="show H3 alone"):  # groups over all versions
        accept(folders[0], study_of([0, 1, 2], [4, 5, 6], version=2, colluders=0), 3)
    (folders[0] / "study.json").unlink()
    accept(folders[0], change(study, version=2), 3)
    assert accepted(folders[0]).hospital_totals == "told"


def test_removing_the_study_alone_does_not_lower_the_protection(study, folders):
    accept(folders[0], study, 3)
    (folders[0] / "study.json").unlink()
    with pytest.raises(NodePermissionException, match="was removed .* although it was accepted"):
        accepted(folders[0])
    (folders[0] / "study.accepted").unlink()
    assert accepted(folders[0]) is None


def test_a_hospital_accepts_no_study_without_it(study_of, folders):
    with pytest.raises(NodePermissionException, match="in no block"):
        accept(folders[7], study_of([0, 1, 2, 3]), 3)
    assert not (folders[7] / "cohorts.log").exists()


def test_a_folder_without_a_key_accepts_nothing(study, tmp_path):
    with pytest.raises(NodePermissionException, match=r"has no identity.key"):
        accept(tmp_path, study, 3)


@pytest.mark.parametrize("version", [1, 2])
def test_versions_rise(study_of, folders, version):
    accept(folders[0], study_of([0, 1, 2, 3], version=2), 3)
    with pytest.raises(SafeError, match=f"accepted version 2, and this study is version {version}; raise"):
        accept(folders[0], study_of([0, 1, 2, 3], [4, 5, 6, 7], version=version), 3)


def test_one_hospital_cannot_join_or_leave_alone(study_of, folders):
    accept(folders[0], study_of([0, 1, 2, 3]), 3)
    with pytest.raises(SafeError, match="sums of this study would show H4 alone"):
        accept(folders[0], study_of([0, 1, 2, 3, 4], version=2), 3)
    accept(folders[0], study_of([0, 1, 2, 3, 4, 5, 6, 7], version=2), 3)  # four join together
    with pytest.raises(SafeError, match="show H7 alone"):
        accept(folders[0], study_of([0, 1, 2, 3, 4, 5, 6], version=3), 3)
    assert [json.loads(line)["study"]["version"] for line in (folders[0] / "cohorts.log").open()] == [1, 2]


def test_the_rule_looks_at_all_versions_and_not_at_the_last_alone(study_of, folders):
    accept(folders[0], study_of([0, 1, 2, 3], colluders=0), 2)
    accept(folders[0], study_of([0, 1, 4, 5], version=2, colluders=0), 2)
    with pytest.raises(SafeError, match="show H0 alone"):  # 0 and 2 against versions 1 and 2
        accept(folders[0], study_of([0, 2, 4, 5], version=3, colluders=0), 2)


def test_another_name_does_not_evade_the_rule(study_of, folders):
    accept(folders[0], study_of([0, 1, 2, 3]), 3)
    with pytest.raises(SafeError, match="show H4 alone"):
        accept(folders[0], change(study_of([0, 1, 2, 3, 4], version=2), name="Another"), 3)


def test_an_assumed_colluder_counts_in_the_rule(study_of, folders):
    accept(folders[0], study_of([0, 1, 2, 3]), 3)
    with pytest.raises(SafeError, match="show H4, H5, H6 alone, and a group must have at least 4"):
        accept(folders[0], study_of([0, 1, 2, 3, 4, 5, 6], version=2), 3)


def test_a_damaged_log_accepts_nothing(study_of, folders):
    (folders[0] / "cohorts.log").write_text("{}\n")
    with pytest.raises(SafeError, match=r"line 1 of cohorts.log is damaged"):
        accept(folders[0], study_of([0, 1, 2, 3]), 3)


def test_a_power_cut_between_the_log_and_the_pin_is_repaired_by_accepting_again(study, folders):
    accept(folders[0], study, 3)
    (folders[0] / "study.accepted").unlink()
    accept(folders[0], study, 3)
    assert accepted(folders[0]) == study


def test_every_hospital_prints_the_same_code(study, folders):
    for folder in folders:
        accept(folder, study, 3)
    assert {accepted(folder).code for folder in folders} == {study.code}
    assert second.study_code(json.loads(study.text())) == study.code
    assert all(study.block_of(keys.public_of(keys.identity(folder))) for folder in folders)


# ---- files that cannot be used


def test_a_study_that_is_nested_too_deeply_is_refused():
    with pytest.raises(SafeError, match="levels"):
        Study.parse("[" * 150 + "]" * 150)


def test_a_study_that_is_no_text_or_a_link_stops_the_node(study, folders):
    (folders[0] / "study.json").write_bytes(b"\xff")
    with pytest.raises(NodePermissionException, match="not UTF-8 text: .*its operator must look at them"):
        accepted(folders[0])
    (folders[0] / "study.json").unlink()
    (folders[0] / "study.json").symlink_to(folders[1] / "identity.key")
    with pytest.raises(NodePermissionException, match="link"):
        accepted(folders[0])


@pytest.mark.parametrize("name", ["write_whole", "os.fsync", "os.write"])
def test_a_disk_that_is_full_is_named(study, folders, monkeypatch, name):
    def full(*args, **kwargs):
        if name == "os.write":  # half a line
            return os.fdopen(os.dup(args[0]), "wb").write(args[1][:9])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"v6_federated.masks.study.{name}", full)
    with pytest.raises(SafeError, match="cannot be written .No space left on device.; correct"):
        accept(folders[0], study, 3)
    monkeypatch.undo()
    assert (folders[0] / "cohorts.log").read_text() == "" or name == "write_whole"
    accept(folders[0], study, 3)
    assert accepted(folders[0]) == study
    assert len((folders[0] / "cohorts.log").read_text().splitlines()) == 1
