"""Studies of simulated hospitals: how they are dealt to blocks, and what is made in their folders."""

import json

import pytest
from helpers import OPEN, table

from v6_federated.base.errors import SafeError
from v6_federated.masks import keys
from v6_federated.masks import study as pinned
from v6_federated.rules.schema import Column, Schema
from v6_workbench.simulation import studies
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.studies import StudyPlan

SCHEMA = Schema((Column("age", "number", 0, 120), Column("sex", "words", levels=("f", "m"))), "ill", (0, 1), n=300)


@pytest.fixture
def folders(tmp_path):
    """Makes the empty folders of hospitals."""

    def folders(names):
        for name in names:
            (tmp_path / name).mkdir(exist_ok=True)
        return {name: tmp_path / name for name in names}

    return folders


def files(folders):
    """All files of hospitals, by folder and name."""
    return {str(file): file.read_bytes() for folder in folders.values() for file in folder.iterdir()}


@pytest.mark.parametrize(
    ("hospitals", "size", "minimum", "blocks"),
    [
        ("ab", None, 1, ["ab"]),
        ("abc", None, 3, ["abc"]),  # none of three can be a colluder
        ("abcd", None, 3, ["abcd"]),
        ("abcdefghi", None, 1, ["abcdefghi"]),
        ("abcdefghij", None, 1, ["abcde", "fghij"]),
        ("abcdefghijk", None, 1, ["abcde", "fghijk"]),
        ("abcdefghijklmn", None, 6, ["abcdefg", "hijklmn"]),
        ("abcdefghijklm", None, 6, ["abcdefghijklm"]),  # two blocks of seven would need one more
        ("abcde", 2, 1, ["ab", "cde"]),
        ("abcdefgh", 4, 3, ["abcd", "efgh"]),
        ("abcdefgh", 8, 3, ["abcdefgh"]),
    ],
)
def test_blocks(hospitals, size, minimum, blocks):
    assert ["".join(block) for block in studies.dealt([*hospitals], size, minimum)] == blocks


@pytest.mark.parametrize(
    ("hospitals", "size", "minimum", "says"),
    [
        ("a", None, 1, "1 node(s) are too few for a study, whose blocks need 2 hospitals"),
        (
            "ab",
            None,
            3,
            "2 node(s) are too few for a study, whose blocks need 3 (V6_FEDERATED_MINIMUM_ORGANIZATIONS=3)",
        ),
        ("abcd", None, 4, "blocks need 5 (V6_FEDERATED_MINIMUM_ORGANIZATIONS=4 and one that may work together with"),
        (
            "abcd",
            1,
            1,
            "blocks of 1 hospitals do not fit; expected 2 to 4, since there are 4 nodes, and a block needs 2",
        ),
        ("abcd", 5, 1, "blocks of 5 hospitals do not fit; expected 2 to 4, since there are 4 nodes"),
        ("abcdefgh", 3, 3, "blocks of 3 hospitals do not fit; expected 4 to 8"),
    ],
)
def test_blocks_that_there_cannot_be(hospitals, size, minimum, says, folders):
    with pytest.raises(SafeError) as error:
        studies.dealt([*hospitals], size, minimum)
    assert says in str(error.value) and "\n" not in str(error.value)
    made = folders(hospitals)
    with pytest.raises(SafeError):
        studies.make(made, StudyPlan(size), minimum)
    assert not files(made), "no key is made for it"


@pytest.mark.parametrize(("hospitals", "colluders"), [("abc", 0), ("abcd", 1), ("abcdefghij", 1)])
def test_all_hospitals_have_accepted_the_study(hospitals, colluders, folders):
    made = folders(hospitals)
    study = studies.make(made)
    assert study.colluders == colluders and study.version == 1 and study.schema is None
    for name, folder in made.items():
        assert pinned.accepted(folder).digest == study.digest
        key = keys.public_of(keys.identity(folder))
        assert name in [hospital.name for hospital in study.block_of(key)]
        assert (folder / keys.NAME).stat().st_mode & 0o077 == 0
        assert not (folder / "schema.json").exists()


def test_the_schema_is_written_and_carried_without_the_rows_of_one_hospital(folders):
    made = folders("abcd")
    study = studies.make(made, StudyPlan(schema=SCHEMA))
    assert study.schema == SCHEMA.shared_digest
    for folder in made.values():
        found = Schema.of_folder(folder)
        assert found.shared_digest == study.schema and found.n is None and found.columns == SCHEMA.columns


def test_keys_that_are_there_are_used_and_the_same_study_stays(folders):
    made = folders("abcd")
    own = keys.new_identity(made["b"])
    first = studies.make(made)
    assert own in [hospital.key for block in first.blocks for hospital in block]
    before = files(made)
    assert studies.make(made).digest == first.digest and files(made) == before
    assert studies.make(made, StudyPlan(4)).digest == first.digest, "the same blocks"


def test_another_study_is_a_new_version(folders):
    made = folders("abcdefgh")
    first = studies.make(made)
    second = studies.make(made, StudyPlan(4))
    third = studies.make(made, StudyPlan(4, SCHEMA))
    assert [study.version for study in (first, second, third)] == [1, 2, 3]
    assert [len(study.blocks) for study in (first, second, third)] == [1, 2, 2]
    keys_of = [{hospital.key for block in study.blocks for hospital in block} for study in (first, second, third)]
    assert keys_of[0] == keys_of[1] == keys_of[2]
    assert all(pinned.accepted(folder).digest == third.digest for folder in made.values())


def test_four_new_hospitals_join(folders):
    first = studies.make(folders("abcd"), StudyPlan(4), 3)
    second = studies.make(folders("abcdefgh"), StudyPlan(4), 3)
    assert (first.version, second.version) == (1, 2) and len(second.blocks) == 2


def test_one_new_hospital_would_be_shown_by_a_difference(folders):
    made = folders("abcd")
    studies.make(made)
    before = files(made)
    with pytest.raises(SafeError, match="would show e alone, and a group must have at least 2 hospitals"):
        studies.make(folders("abcde"))
    assert files(made) == before


@pytest.mark.parametrize("names", [None, {2: "north", 3: "south"}])
def test_organizations_without_a_name_are_in_no_block(names, tmp_path):
    """Such as one that holds a test set."""
    rows = {k: table(seed=k) for k in (2, 3, 9)}
    with MockNetwork("v6_fedavg", rows, environment=OPEN, hospital_folder=tmp_path, study=StudyPlan(names=names)):
        pass
    accepted = {k: pinned.accepted(tmp_path / f"node-{k}") for k in rows}
    if names is None:
        assert [hospital.name for hospital in accepted[2].blocks[0]] == ["node-2", "node-3", "node-9"]
    else:
        assert accepted[9] is None and [hospital.name for hospital in accepted[2].blocks[0]] == ["north", "south"]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda file: file.write_bytes(b"\xff"), "study.json cannot be read; remove it"),
        (lambda file: file.mkdir(), "study.json cannot be read; remove it"),
        (lambda file: file.write_text("{"), "it is not JSON"),
        (lambda file: file.write_text(json.dumps({"protocol": 1})), "and nothing else"),
    ],
)
def test_a_study_that_cannot_be_read(spoil, says, folders):
    made = folders("abcd")
    spoil(made["c"] / pinned.NAME)
    with pytest.raises(SafeError) as error:
        studies.make(made)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_folder_that_cannot_be_written(folders):
    made = folders("abcd")
    studies.make(made)
    (made["b"] / "schema.json").mkdir()
    with pytest.raises(SafeError, match=r"b cannot be written \(.*\); choose another folder"):
        studies.make(made, StudyPlan(schema=SCHEMA))
