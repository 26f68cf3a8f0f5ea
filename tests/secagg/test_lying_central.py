"""A central that lies: what each node refuses, what never opens, and what is no oracle."""

import importlib
import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from forged import LOCAL, central, change_table, k_rows, keep, other_key, roll_back
from helpers import four
from masked_jobs import QUICK, nodes, run

from v6_federated import models
from v6_federated.base.database import Frame, name_of, named
from v6_federated.base.vantage6_api import CollectResultsError, Database
from v6_federated.central.answer import Answer, Expected
from v6_federated.central.blocks import KINDS
from v6_federated.central.calls import Group, Question
from v6_federated.data.frames import ATTRIBUTES, encode
from v6_federated.data.source import Source
from v6_federated.masks import keys, study, summing
from v6_federated.masks.answered import KEPT, Answered
from v6_federated.messages import codec
from v6_federated.node.node import Node
from v6_federated.rules.policy import Policy
from v6_workbench.simulation import studies
from v6_workbench.simulation.mock import TRUSTING

MODES = ("masked", "pinned")
RESTORED = "an older copy of the hospital's folder was put back"
CHANGED = "the table of this node, or a limit that decides its answers, has changed since the job began"


def volume(lying, k: int) -> Path:
    """The folder of the job at a node."""
    return lying.network.nodes[k].folder / "tmp"


def hospital(lying, k: int) -> Path:
    """The hospital's own folder."""
    return Path(lying.network.nodes[k].environment["HOSPITAL_DATABASE_URI"])


def short(entry: dict) -> str:
    """How an error names a peer, apart from its name in the study."""
    return f"the key {keys.short(bytes.fromhex(entry['S']))}"


@pytest.mark.parametrize("mode", MODES)
def test_an_honest_central_gets_sums(mode, tmp_path):
    """The calls of the tests below are right as far as they are not forged."""
    with central(mode, tmp_path) as lying:
        lying.agree()
        answers = [lying.update(k) for k in lying.network.nodes]
        N, failed, found, wrapped = lying.opened(answers)
        assert (N, failed, found["one n"], wrapped) == (5, 0, lying.rows, [])
        assert 0.01 < np.abs(found["share weights 2^3"]).max() < 1
        assert lying.opened(answers[1:])[0] not in (4, 5)  # four of them open nothing


# ---- who takes part


def test_invented_participants_are_not_the_block(tmp_path):
    """All others are the server's own, with keys of its own."""
    with central("pinned", tmp_path) as lying:
        lying.hello()
        made = [
            other_key(lying.entries[k], X25519PrivateKey.generate(), X25519PrivateKey.generate()) for k in range(2, 6)
        ]
        refusal = lying.confirm(1, [lying.entries[1], *made])
        assert "not this node's block of the study: 4 keys too many, 4 missing" in refusal
        assert all(f"{short(lying.entries[k])} of node-{k}" in refusal for k in range(2, 6))


@pytest.mark.parametrize("change", ["one fewer", "one more", "twice", "without this node", "own entry changed"])
def test_a_cohort_that_is_not_the_block_is_refused(change, tmp_path):
    with central("pinned", tmp_path, K=10) as lying:
        lying.hello()
        block = [lying.entries[k] for k in range(1, 6)]
        roster = {
            "one fewer": block[:4],
            "one more": [*block, lying.entries[6]],
            "twice": [*block, block[1]],
            "without this node": [*block[1:], lying.entries[6]],
            "own entry changed": [{**block[0], "D": block[1]["D"]}, *block[1:]],
        }[change]
        says = {
            "one fewer": "0 keys too many, 1 missing",
            "one more": "1 keys too many, 0 missing",
            "twice": "two entries with the same key",
        }.get(change, "lacks this node's own entry, or changes it")
        assert says in lying.confirm(1, roster)
        assert isinstance(lying.update(1), str)  # and nothing is answered


def test_without_a_study_all_participants_are_one_block(tmp_path):
    with central("masked", tmp_path, K=4) as lying:
        lying.hello()
        assert "all of them must be one block" in lying.confirm(1, [lying.entries[k] for k in (1, 2, 3)])
        assert "must have at least 3" in lying.confirm(1, [lying.entries[k] for k in (1, 2)])


@pytest.mark.parametrize("mode", MODES)
def test_other_versions_are_named(mode, tmp_path):
    with central(mode, tmp_path) as lying:
        lying.hello()
        lying.entries[3] = {**lying.entries[3], "version": "0.0.1"}
        assert "others run 0.0.1; use the same image" in lying.confirm(1)


# ---- keys


def test_a_job_key_that_its_hospital_did_not_make_is_found_and_the_peer_named(tmp_path):
    """The server knows no identity key: with an E of its own for one peer, it cannot make that peer's tags."""
    with central("pinned", tmp_path) as lying:
        lying.hello()
        honest = dict(lying.entries)
        lying.entries[3] = other_key(honest[3], X25519PrivateKey.generate())
        for k in (1, 2, 4, 5):
            assert not isinstance(lying.confirm(k), str)
        assert "lacks this node's own entry" in lying.confirm(3)
        assert not isinstance(lying.confirm(3, honest.values()), str)  # it is shown its own E
        for k in (1, 2, 4, 5):
            refusal = lying.update(k)
            said = f"{short(honest[3])} of node-3 did not confirm the same keys and roster"
            assert refusal.startswith(said), refusal
        assert "did not confirm" in lying.update(3)


def test_swapped_job_keys_are_found(tmp_path):
    with central("pinned", tmp_path) as lying:
        lying.hello()
        honest = dict(lying.entries)
        two, three = honest[2], honest[3]
        lying.entries |= {2: {**two, "E": three["E"]}, 3: {**three, "E": two["E"]}}
        assert not isinstance(lying.confirm(1), str)
        lying.entries = honest
        for k in (2, 3, 4, 5):
            assert not isinstance(lying.confirm(k), str)
        assert "did not confirm the same keys" in lying.update(1)
        refusal = lying.update(2)
        assert refusal.startswith(f"{short(honest[1])} of node-1 "), refusal  # with whose roster its own differs


@pytest.mark.parametrize(
    "forge", ["none", "one is missing", "empty", "turned round", "of somebody else", "no text", "no words"]
)
@pytest.mark.parametrize("mode", MODES)
def test_tags_are_checked(forge, mode, tmp_path):
    with central(mode, tmp_path) as lying:
        lying.agree()
        one, two = lying.entries[1]["S"], lying.entries[2]["S"]
        tags = lying.tags
        lying.tags = {
            "none": {},
            "one is missing": {S: said for S, said in tags.items() if two != S},
            "empty": {**tags, two: {**tags[two], one: ""}},
            "turned round": {**tags, two: {**tags[two], one: tags[one][two]}},
            "of somebody else": {**tags, two: tags[lying.entries[3]["S"]]},
            "no text": {**tags, two: {**tags[two], one: 7}},
            "no words": {**tags, two: [1]},
        }[forge]
        refusal = lying.update(1)
        assert "did not confirm the same keys and roster as this node" in refusal
        assert forge == "none" or refusal.startswith(short(lying.entries[2]))
        lying.tags = tags
        assert isinstance(lying.update(1), str)  # the job's keys are gone


def test_another_study_gives_other_keys(tmp_path):
    """One hospital has accepted a new version of the same blocks: no tag fits, before anything of rows leaves."""
    with central("pinned", tmp_path) as lying:
        found = study.accepted(hospital(lying, 1))
        newer = replace(found, version=2)
        (hospital(lying, 1) / study.NAME).write_text(newer.text())
        study.accept(hospital(lying, 1), newer, 3)
        lying.agree()
        for k in lying.network.nodes:
            assert "did not confirm" in lying.update(k)


def test_a_study_that_changes_during_the_job_ends_it(tmp_path):
    with central("pinned", tmp_path) as lying:
        lying.agree()
        assert not isinstance(lying.update(1), str)
        found = study.accepted(hospital(lying, 1))
        newer = replace(found, version=2)
        (hospital(lying, 1) / study.NAME).write_text(newer.text())
        assert "differs from the one that was accepted" in lying.update(1, 2)
        study.accept(hospital(lying, 1), newer, 3)
        assert "the study of this hospital has changed" in lying.update(1, 2)


@pytest.mark.parametrize("mode", MODES)
def test_a_roster_is_confirmed_once(mode, tmp_path):
    """Another one for the same job is refused, before and after the first round; the same one gives the same tags."""
    with central(mode, tmp_path) as lying:
        lying.agree()
        tags = lying.confirm(1)["tags"]
        other = {**lying.entries, 2: other_key(lying.entries[2], X25519PrivateKey.generate())}
        assert "begun with another roster" in lying.confirm(1, other.values())
        assert not isinstance(lying.update(1), str)
        assert "begun with another roster" in lying.confirm(1, other.values())
        assert lying.confirm(1)["tags"] == tags
        assert lying.call(1, "describe", round_=0, raw=False)["entry"] == lying.entries[1]


def test_nothing_leaves_before_the_agreement(tmp_path):
    with central("pinned", tmp_path) as lying:
        assert "key is gone" in lying.update(1)
        lying.hello()
        assert "have not agreed on keys" in lying.update(1)


# ---- requests


@pytest.mark.parametrize("mode", MODES)
def test_a_number_is_used_once_and_numbers_rise(mode, tmp_path):
    with central(mode, tmp_path) as lying:
        lying.agree()
        first = lying.update(1, 5)
        assert lying.update(1, 5) == first  # the same request gets the same bytes
        for other in (
            {"weights": np.ones(5)},
            {"lr": 0.2},
            {"rows": lying.rows + 1},
            {"round_": 2},
            {"unit": (64, 10)},
            {"unit": (32, 4)},
            {"job": {"rounds": 4}},
        ):
            assert "this is request 5 of the job, and this node has begun request 5" in lying.update(1, 5, **other)
        assert "this is request 4 of the job, and this node has begun request 5" in lying.update(1, 4)
        second = lying.update(1, 6)
        assert second["T"] != first["T"] and second["y32"] != first["y32"]
        assert lying.update(1, 5) == first
        for seq in (0, -1, 2**31, "7", None, 7.0):
            sent = {"local": {"lr": 0.1}, "arrays": codec.encode({"weights": np.zeros(5)})}
            asked = {**lying.sums(7, "client_update", **sent).to_json(), "seq": seq}
            refusal = lying.call(1, "client_update", sums=asked, **sent)
            assert "malformed sum" in refusal


def test_stored_answers_end_some_requests_later(tmp_path):
    """Then the request is refused: it is never computed again."""
    with central("pinned", tmp_path) as lying:
        lying.agree()
        for seq in range(1, KEPT + 2):
            lying.update(1, seq)
        assert "has answered this request, and the stored answer is gone" in lying.update(1, 1)
        assert not any(isinstance(lying.update(1, seq), str) for seq in range(2, KEPT + 2))


@pytest.mark.parametrize("mode", MODES)
def test_another_model_for_each_node_opens_nothing(mode, tmp_path):
    """Central's own check names who differs. A central without it has noise."""
    with central(mode, tmp_path) as lying:
        lying.agree()
        answers = {k: lying.update(k, weights=np.full(5, float(k == 2))) for k in lying.network.nodes}
        assert len({a["T"] for a in answers.values()}) == 2
        N, _, found, _ = lying.opened([*answers.values()])
        assert N != 5 and found["one n"] != lying.rows
        asked = lying.asked
        taken = [
            Answer(
                k,
                0,
                {f"y{b}": codec.decode_words(a[f"y{b}"], f"uint{b}", asked.words(b)) for b in (32, 64)},
                {"T": a["T"]},
                0,
                0,
                "client_update",
            )
            for k, a in answers.items()
        ]
        blocks = KINDS[mode]([[*answers]], {1: lying.rows})
        question = Question(Group("client_update", [*answers], lying.job), blocks.blocks, Expected(), asked)
        with pytest.raises(CollectResultsError, match=r"organizations \[2\] have answered another request"):
            blocks.open(question, [*answers], taken)
        same = [Answer(**{**vars(a), "values": {"T": "0" * 64}}) for a in taken]
        with pytest.raises(CollectResultsError, match="do not cancel"):
            blocks.open(question, [*answers], same)


@pytest.mark.parametrize("function", ["client_update", "evaluate", "fit_step", "count_rows"])
@pytest.mark.parametrize("mode", MODES)
def test_single_answers_are_refused(function, mode, tmp_path):
    arguments = {
        "client_update": {"local": {}, "arrays": codec.encode({"weights": np.zeros(5)})},
        "evaluate": {"evaluate": "held_out", "arrays": codec.encode({"weights": np.zeros(5)})},
        "fit_step": {"statistic": "moments", "columns": []},
    }.get(function, {})
    with central(mode, tmp_path) as lying:
        for agreed in (False, True):
            if agreed:
                lying.agree()
            says = lying.call(1, function, **arguments)
            assert f"{function} is asked for this node's own answer, and this job only has masked ones" in says


@pytest.mark.parametrize(
    "package", ["v6_scaffold", "v6_fsvrg", "v6_colearning", "v6_pca", "v6_coop", "v6_dynavg", "v6_gbdt"]
)
def test_every_function_of_every_method_answers_in_sums_only(package, tmp_path):
    """Whatever its arguments are, it answers nothing without ``sums``, besides the agreement."""
    module = importlib.import_module(package)
    with central("masked", tmp_path, K=3, package=package) as lying:
        lying.job["method"] = package.removeprefix("v6_")
        for function in set(module.__all__) - {"central", "describe", "confirm", "keep_steps", "forget", "extract"}:
            assert isinstance(lying.call(1, function), str)
        functions = {"scaffold": "client_update", "fsvrg": "gradient", "pca": "fit_step", "coop": "client_update"}
        function = functions.get(lying.job["method"])
        arguments = {
            "v6_scaffold": {"known": {}, "local": {}},
            "v6_pca": {"statistic": "moments"},
        }.get(package, {})
        if package in ("v6_scaffold", "v6_fsvrg", "v6_pca"):
            assert "is asked for this node's own answer" in lying.call(1, function, **arguments)


@pytest.mark.parametrize("mode", ["masked", "pinned"])
def test_an_operator_that_requires_masks_is_asked_for_nothing_less(mode, tmp_path):
    """Whatever the job says of itself, and whether or not it brings ``sums``."""
    environment = {"V6_FEDERATED_PROFILE": "trusting", "V6_FEDERATED_AGGREGATION": mode}
    with central("pinned", tmp_path, environment=environment) as lying:
        looser = ("plain", "masked")[: 1 + (mode == "pinned")]
        for less in looser:
            for function, arguments in (
                ("describe", {"raw": False}),
                ("client_update", {"local": {}, "arrays": codec.encode({"weights": np.zeros(5)})}),
                ("fit_step", {"statistic": "moments"}),
                ("evaluate", {"evaluate": "held_out", "arrays": codec.encode({"weights": np.zeros(5)})}),
            ):
                refusal = lying.call(1, function, job={"aggregation": less}, **arguments)
                assert f"this node's operator requires aggregation={mode}" in refusal
        lying.job["aggregation"] = "auto"
        says = lying.call(1, "fit_step", statistic="moments")
        assert "is asked for this node's own answer" in says


def test_a_job_of_another_jobs_key_is_refused(tmp_path):
    with central("pinned", tmp_path) as lying:
        lying.agree()
        assert not isinstance(lying.update(1), str)
        says = lying.call(1, "describe", round_=0, raw=False, job={"aggregation": "masked"})
        assert "the job has begun with aggregation=pinned" in says
        other = lying.update(1, 2, job={"method": "scaffold"})  # other keys lie under another method's name
        assert "key is gone" in other
        lying.call(1, "forget")
        assert "key is gone" in lying.call(1, "describe", round_=0, raw=False)  # a key is never used again
        assert "key is gone" in lying.update(1)


# ---- what a node keeps


def test_a_table_that_changes_ends_the_job(tmp_path):
    with central("pinned", tmp_path) as lying:
        lying.agree()
        assert not isinstance(lying.update(1), str)
        change_table(lying.network, 1)
        assert CHANGED in lying.update(1, 2)
        assert CHANGED in lying.update(1)  # also what was answered


@pytest.mark.parametrize("mode", MODES)
def test_a_volume_that_was_wiped_ends_the_job(mode, tmp_path):
    with central(mode, tmp_path) as lying:
        lying.agree()
        assert not isinstance(lying.update(1), str)
        for file in volume(lying, 1).rglob("*"):
            if file.is_file():
                file.unlink()
        assert "this job's key is gone from the node's data volume; start a new job" in lying.update(1)
        assert "this job's key is gone" in lying.call(1, "describe", round_=0, raw=False)
        assert "this job's key is gone" in lying.confirm(1)


def test_a_volume_that_is_rolled_back_repeats_nothing(tmp_path):
    """The log lies elsewhere: neither the same request nor another one of its number is computed again."""
    with central("pinned", tmp_path) as lying:
        lying.agree()
        keep(volume(lying, 1), tmp_path / "copy")
        assert not isinstance(lying.update(1), str)
        roll_back(volume(lying, 1), tmp_path / "copy")
        assert "the stored answer is gone" in lying.update(1)
        assert "has begun request 1 with other contents" in lying.update(1, weights=np.ones(5))
        assert not isinstance(lying.update(1, 2), str)


def test_volume_and_folder_rolled_back_give_the_same_bytes(tmp_path):
    with central("pinned", tmp_path) as lying:
        lying.agree()
        folders = (volume(lying, 1), tmp_path / "volume"), (hospital(lying, 1), tmp_path / "folder")
        for folder, copy in folders:
            keep(folder, copy)
        first = lying.update(1, batch_size=10, local_steps=4)
        for folder, copy in folders:
            roll_back(folder, copy)
        assert lying.update(1, batch_size=10, local_steps=4) == first


def set_limit(lying, k: int, name: str, value: str) -> None:
    """What a node's operator does between two requests."""
    node = lying.network.nodes[k]
    lying.network.nodes[k] = replace(node, environment={**node.environment, name: value})


FOLDERS = {"the folder": [hospital], "the folder and the volume": [hospital, volume]}


@pytest.mark.parametrize("limit", [None, ("V6_FEDERATED_OWN_SHUFFLE", "1")], ids=["same limits", "another limit"])
@pytest.mark.parametrize("put_back", FOLDERS)
@pytest.mark.parametrize("at", ["before the hello", "after the hello", "while it computes"])
def test_a_folder_that_is_put_back_brings_no_second_answer(at, put_back, limit, tmp_path, monkeypatch):
    """With another limit, the same request once had another answer under the same masks: their difference leaks."""
    with central("pinned", tmp_path / "folders") as lying:

        def copy():
            for i, folder in enumerate(FOLDERS[put_back]):
                keep(folder(lying, 1), tmp_path / f"copy-{i}")

        def ask():
            said = lying.update(1, weights=np.full(5, 0.1), batch_size=10, local_steps=3)
            return said if isinstance(said, str) else json.dumps(said)

        if at == "before the hello":
            lying.call(1, "describe", round_=0, raw=False, job={"key": "f" * 32})  # makes the node's secret
            copy()
        lying.agree()
        if at == "after the hello":
            copy()
        if at == "while it computes":
            real = Answered.finish
            monkeypatch.setattr(Answered, "finish", lambda *args: (copy(), real(*args))[1])
        first = ask()
        monkeypatch.undo()
        assert first.startswith("{")
        for i, folder in enumerate(FOLDERS[put_back]):
            roll_back(folder(lying, 1), tmp_path / f"copy-{i}")
        if limit:
            set_limit(lying, 1, *limit)
        again = ask()
        assert again == first or not again.startswith("{"), "two answers to one request"
        if at == "before the hello":  # what opens the job's keys lies in the folder
            assert "this job's key is gone" in again
        elif limit:
            assert CHANGED in again
        elif put_back == "the folder" and at == "after the hello":
            assert RESTORED in again
            assert RESTORED in lying.update(1, 2)  # also for requests that it has not answered


def test_limits_that_only_say_who_is_answered_may_change_during_a_job(tmp_path):
    with central("pinned", tmp_path) as lying:
        lying.agree()
        set_limit(lying, 1, "V6_FEDERATED_MAXIMUM_ROUNDS_A_WEEK", "5000")
        assert not isinstance(lying.update(1), str)


def test_an_answer_that_was_changed_on_the_disk_is_gone(tmp_path):
    with central("pinned", tmp_path) as lying:
        lying.agree()
        lying.update(1)
        [file] = volume(lying, 1).glob("answers/*")
        stored = file.read_bytes()
        file.write_bytes(bytes([stored[0] ^ 1]) + stored[1:])
        assert "the stored answer is gone" in lying.update(1)


# ---- oracles


def test_units_tell_nothing_of_one_node(tmp_path):
    """Numbers beyond a unit's range wrap. Nothing is refused, clamped or counted: each sum is the same one, modulo."""
    with central("pinned", tmp_path) as lying:
        lying.agree()
        answers = [lying.update(k, 1, unit=(64, 10)) for k in lying.network.nodes]
        truth = lying.opened(answers)[2]["share weights 2^10"]
        for seq, e in enumerate(range(-40, 5, 4), start=2):
            answers = [lying.update(k, seq, unit=(32, e)) for k in lying.network.nodes]
            N, failed, found, wrapped = lying.opened(answers)
            assert (N, failed) == (5, 0)
            added = lying.rows * 2.0 ** -summing.halvings(lying.rows)  # by which central has divided what nodes add up
            off = added * (found[f"share weights 2^{e}"] - truth)
            off = np.mod(off + 2.0 ** (e + 1), 2.0 ** (e + 2)) - 2.0 ** (e + 1)
            assert np.abs(off).max() <= 2.5 * 2.0 ** (e - 30) + 5 * 2.0**-46
            assert bool(wrapped) == bool(np.abs(truth).max() > 2.0 ** (e + 1))


def test_the_rows_of_one_node_cannot_be_bisected(tmp_path):
    """A mean over fewer rows than a node has is as good as any other multiple of the sum."""
    with central("pinned", tmp_path) as lying:
        lying.agree()
        found = []
        for seq, rows in enumerate((1, 10, 20, 25, 30, 10**9), start=1):
            answers = [lying.update(k, seq, rows=rows, unit=(64, 10)) for k in lying.network.nodes]
            assert not any(isinstance(a, str) for a in answers)
            _, failed, sums, wrapped = lying.opened(answers)
            assert not failed and not wrapped
            found.append(rows * sums["share weights 2^10"])
        for other in found[:-1]:
            np.testing.assert_allclose(other, found[0], rtol=1e-9)


def test_a_model_that_overflows_at_one_node_is_not_refused(tmp_path):
    """Forty such requests would tell one hospital's largest value. Only that some node has failed is in the sum."""
    with central("pinned", tmp_path) as lying:
        lying.job["data"] = {**lying.job["data"], "holdout": 0.5}
        lying.job["model"] = {"name": "fnn", "features": 4, "classes": 2, "hidden": 3}  # which computes in float32
        lying.agree()
        for seq, weight in ((1, 3e38), (2, 0.0)):
            weights = np.full(models.parameters(models.parse(lying.job["model"])), weight)
            sent = {"evaluate": "held_out", "arrays": codec.encode({"weights": weights})}
            answers = [lying.ask(k, "evaluate", seq, **sent) for k in lying.network.nodes]
            assert not any(isinstance(a, str) for a in answers)
            N, failed, found, _ = lying.opened(answers)
            assert N == 5 and failed
            assert not 0 <= found["one evaluation.n"] < 1000  # noise, also in later sums: no other node is alone
        refused = [line.get("refused", "") for k in lying.network.nodes for line in lying.audit(k)]
        assert any("noise is added to the sum instead: the model's scores are not finite" in said for said in refused)
        assert any("could not compute an earlier part of the job" in said for said in refused)


def test_how_far_a_node_came_that_fails_cannot_be_seen(tmp_path, monkeypatch):
    """Before it loads what it kept, or after: its masks cancel, in this request and in later ones."""
    one_step, broken = Node.one_step, [2, 3]

    def fails(self, *arguments):
        if self.organization_id == 3 and self.round in broken:
            raise ValueError
        return one_step(self, *arguments)

    monkeypatch.setattr(Node, "one_step", fails)
    with central("masked", tmp_path) as lying:
        lying.agree()
        arrays = codec.encode({"weights": np.zeros(5)})
        for round_ in range(1, 6):
            known = {"block 1": round_ - 1} if round_ > 1 else {}
            settings = {"local": LOCAL, "personal": {}, "known": known, "arrays": arrays}
            answers = [lying.ask(k, "ditto_update", round_, round_=round_, **settings) for k in lying.network.nodes]
            assert lying.opened(answers)[:2] == (5, int(round_ > 1))


@pytest.mark.parametrize(
    "change",
    [
        {"minimum_rows": 25},
        {"seed": 1},
        {"participants": [1, 2, 3, 4, 5, 6]},
        {"data": {"holdout": 0.2}},
        {"data": {"features": ["x0"]}},
        {"data": {"label": "x0"}},
        {"data": {"classes": [1, 0]}},
    ],
    ids=str,
)
def test_a_job_cannot_change_its_rows(change, tmp_path):
    """Two sums over other rows could be subtracted: the rows, columns and classes are those of the agreement."""
    with central("pinned", tmp_path) as lying:
        lying.agree()
        change = {**change, **({"data": {**lying.job["data"], **change["data"]}} if "data" in change else {})}
        for k in lying.network.nodes:
            assert "the job asks for other rows, columns or classes than when it began" in lying.update(k, job=change)
        assert not isinstance(lying.update(1), str)


def test_no_limit_on_rows_refuses_a_job_after_the_hello(tmp_path):
    """A researcher's minimum that one node does not reach: the node adds noise, and nobody learns which it is."""
    with central("masked", tmp_path) as lying:
        lying.job["minimum_rows"] = 30
        lying.agree()
        answers = [lying.update(k) for k in lying.network.nodes]
        assert not any(isinstance(a, str) for a in answers)
        assert lying.opened(answers)[:2] == (5, True)
        logs = {k: any("refused" in line for line in lying.audit(k)) for k in lying.network.nodes}
        assert logs == {k: k_rows(node) < 30 for k, node in lying.network.nodes.items()}


@pytest.mark.parametrize(
    "change",
    [
        {"unit": (32, 41)},
        {"unit": (64, 3)},
        {"unit": (64, 280)},
        {"unit": (16, 3)},
        {"layout": "0" * 64},
        {"layout": "another"},
        {"layout": None},
        {"parts": [["weights", "one", 64, [5], None]]},
        {"units": []},
        {"units": [[32, 3], [32, 3]]},
        {"units": [[32, 3.0]]},
        {"units": [[32, True]]},
        {"units": "32"},
        {"units": {"32": 3}},
        {"units": [32, 3]},
    ],
    ids=str,
)
def test_nothing_but_what_a_function_declares_is_added_up(change, tmp_path):
    """Central once named each part with its weight, kind and unit. All nodes refuse alike, before a row is read."""
    with central("pinned", tmp_path) as lying:
        lying.agree()
        sent = {"local": {"lr": 0.1}, "arrays": codec.encode({"weights": np.zeros(5)})}
        good = lying.sums(1, "client_update", **sent).to_json()
        change = {"units": [[*change["unit"]]]} if "unit" in change else change
        said = {lying.call(k, "client_update", sums={**good, **change}, **sent) for k in lying.network.nodes}
        expected = "malformed sum" if "parts" in change else "another sum than" if "layout" in change else "unit"
        [one] = said
        assert expected in one, one
        assert lying.call(1, "client_update", sums=good, **sent)["T"]


def test_the_held_out_share_is_one_for_all_jobs_of_a_study(tmp_path):
    """Two jobs that hold out other rows could be subtracted: 0.2 and 0.1999999 differ by ten of 175 rows."""
    jobs = ((0.2, True), (0.2, True), (0.3, False), (0.1999999, False), (np.nextafter(0.2, 1), False))
    for i, (holdout, fine) in enumerate(jobs):
        with central("pinned", tmp_path) as lying:
            lying.job |= {"key": f"{i:032x}", "data": {**lying.job["data"], "holdout": holdout}}
            lying.agree()
            said = lying.update(1)
            assert isinstance(said, dict) == fine
            assert fine or "this hospital holds out the share 0.2 of its rows in all jobs of its study" in said


def at_database(label: str) -> dict[str, str]:
    """The environment variables that name a task's database to its container."""
    return {"USER_REQUESTED_DATABASE_LABELS": label, f"{label.upper()}_DATABASE_TYPE": "csv"}


@four
def test_another_database_at_one_hospital_is_refused(tmp_path):
    """The difference of two sums was the hospital's own rows and those of the other database, which all may know."""
    with central("pinned", tmp_path, environment=TRUSTING | at_database("default")) as lying:
        lying.agree()
        assert all(isinstance(lying.update(k), dict) for k in lying.network.nodes)
        change_table(lying.network, 1)
        own, file = lying.network.nodes[1], hospital(lying, 1) / "table"
        lying.network.nodes[1] = replace(own, environment={**own.environment, **at_database("demo")})
        for key in ("1", "2"):
            lying.job["key"] = key * 32
            lying.entries, lying.tags = {}, {}
            lying.agree()
            if key == "1":
                says = (
                    "all jobs of its study are about the database 'default' of this hospital, and this one names 'demo'"
                )
                assert lying.update(1).startswith(says)
                file.unlink()  # its operator means it
        assert isinstance(lying.update(1), dict)
        assert file.read_text() == "demo"


@four
@pytest.mark.parametrize("mode", ["masked", "pinned"])
def test_the_database_is_a_part_of_the_transcript(mode, tmp_path):
    """In the first job of a study, or without one, masks do not cancel if one node is asked about another database."""
    with central(mode, tmp_path, environment=TRUSTING | at_database("default")) as lying:
        lying.agree()
        own = lying.network.nodes[2]
        lying.network.nodes[2] = replace(own, environment={**own.environment, **at_database("demo")})
        answers = [lying.update(k) for k in lying.network.nodes]
        assert len({answer["T"] for answer in answers}) == 2
        assert lying.opened(answers)[0] != len(answers)


def test_a_table_has_one_name_whatever_a_session_calls_it():
    """What a task chooses of a database, by a sheet or a query, is another table."""
    plain = Database("default", "csv", "a.csv")
    sheet, query = replace(plain, sheet="2025"), replace(plain, query="SELECT 1")
    assert name_of(plain) == name_of(replace(plain, label="DEFAULT")) == "default"
    assert len({name_of(each) for each in (plain, sheet, query, replace(query, query="SELECT 2"))}) == 4
    table = Source(table=nodes(1)[1])
    for given, name in (((), ""), ((name_of(query),), name_of(query))):
        written = encode(table, Policy.of("careful"), False, *given)
        frame = written.to_pandas()
        frame.attrs = json.loads(written.schema.metadata[ATTRIBUTES])  # as pandas reads them from a file
        assert named(Frame(frame)) == name


def test_malformed_sums_are_refused(tmp_path):
    with central("pinned", tmp_path) as lying:
        lying.agree()
        arrays = codec.encode({"weights": np.zeros(5)})
        good = lying.sums(1, "client_update", local={}, arrays=arrays).to_json()
        for odd in (
            {},
            [],
            7,
            {**good, "more": 1},
            {**good, "parts": []},
            {**good, "block": None},
            {**good, "units": [[32, 3]] * 600},
            {**good, "rows": 0},
            {**good, "rows": None},
            {**good, "rows": 2**41},
            {**good, "tags": None},
        ):
            said = lying.call(1, "client_update", sums=odd, local={}, arrays=arrays)
            assert isinstance(said, str) and "sum" in said, odd
        assert not isinstance(lying.update(1), str)


# ---- whole jobs


def test_a_study_that_differs_at_one_node_ends_a_job_before_the_first_sum(tmp_path):
    def newer(folder: Path) -> None:
        found = study.accepted(folder)
        newer = replace(found, version=2)
        (folder / study.NAME).write_text(newer.text())
        study.accept(folder, newer, 3)

    folders = {f"node-{k}": tmp_path / f"node-{k}" for k in range(1, 6)}
    for folder in folders.values():
        folder.mkdir()
    studies.make(folders, studies.StudyPlan(5), 3)
    newer(folders["node-2"])
    with pytest.raises(CollectResultsError, match="did not confirm the same keys"):
        run("v6_fedavg", nodes(5), "pinned", tmp_path, **QUICK)


def test_a_hospital_that_takes_no_part_breaks_its_block(tmp_path):
    with pytest.raises(CollectResultsError, match="a block of a study can only be summed as a whole"):
        run("v6_fedavg", nodes(10), "pinned", tmp_path, size=5, organizations=list(range(1, 10)), **QUICK)


def test_one_block_can_train_alone(tmp_path):
    result = run("v6_fedavg", nodes(10), "pinned", tmp_path, size=5, organizations=[1, 2, 3, 4, 5], **QUICK)
    assert result["privacy"]["blocks"] == [[1, 2, 3, 4, 5]]


@pytest.mark.parametrize("package", ["v6_coop", "v6_dynavg", "v6_loadaboost", "v6_gbdt"])
def test_methods_that_need_single_answers_are_refused_with_the_reason(package):
    own = {"objective": "regression"} if package == "v6_gbdt" else {}
    with pytest.raises(Exception, match="needs aggregation=plain: "):
        run(package, nodes(3), "masked", rounds=2, **own)


def test_two_jobs_have_nothing_in_common(tmp_path):
    """The same request twice, in two jobs: other keys, transcripts and masks."""
    found = []
    for key in ("0" * 32, "1" * 32):
        with central("pinned", tmp_path) as lying:
            lying.job["key"] = key
            lying.agree()
            found.append((lying.entries[1], lying.update(1)))
    (one, a), (two, b) = found
    assert one["S"] == two["S"] and one["E"] != two["E"] and one["D"] != two["D"]
    words = [codec.decode_words(x["y32"], "uint32", 5) for x in (a, b)]
    assert a["T"] != b["T"] and not any(np.equal(x, y).any() for x, y in itertools.pairwise(words))
