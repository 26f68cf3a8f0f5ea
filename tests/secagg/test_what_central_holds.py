"""What central receives: transcripts and words that look like noise, of which a sum over a whole block opens."""

import base64
import re

import numpy as np
import pytest
from masked_jobs import QUICK, Tape, nodes, run, without_masks
from test_equal import STEPS, clinics

from v6_federated.gate import under_masks
from v6_federated.masks import notation

DESCRIBE = {"organization_id", "round", "label", "features", "kinds", "classes", "levels"}
DESCRIBE |= {"mode", "entry", "block", "score_bands", "hospital_totals"}
CONFIRM = {"organization_id", "round", "tags", "colluders", "hospitals_a_person"}
MASKED = {"organization_id", "round", "T", "y32", "y64"}
CHI = 420.0  # of 255 degrees of freedom: 1 of a billion uniform samples is above it
JOBS = {
    "fedavg": ("v6_fedavg", {**QUICK, "local_steps": 4, "batch_size": 10, "preprocess": ["standardize"]}),
    "scaffold": ("v6_scaffold", QUICK),
    "fsvrg": ("v6_fsvrg", {"rounds": 2}),
    "colearning": ("v6_colearning", QUICK),
    "pca": ("v6_pca", {"components": 2, "features": ["x0", "x1", "x2", "x3"]}),
}


def words(answer: dict, bits: int) -> np.ndarray:
    """The words of an answer."""
    payload = answer[f"y{bits}"]
    return np.frombuffer(base64.b64decode(payload["data"]), f"<u{bits // 8}")


def chi_square(data: bytes) -> float:
    """How far the counts of bytes are from equal ones."""
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    expected = len(data) / 256
    return float(np.square(counts - expected).sum() / expected)


def looks_random(data: bytes) -> bool:
    """Whether bytes pass: the counts of bytes, and of the differences of neighbours."""
    values = np.frombuffer(data, np.uint8)
    return len(data) > 5000 and chi_square(data) < CHI and chi_square(np.diff(values).tobytes()) < CHI


@pytest.mark.parametrize("method", JOBS)
@pytest.mark.parametrize("mode", ["masked", "pinned"])
def test_answers_hold_a_transcript_and_words_and_nothing_else(method, mode, tmp_path):
    package, settings = JOBS[method]
    tape = Tape()
    K = 4 if mode == "masked" else 10
    size = None if mode == "masked" else 5
    result = run(package, nodes(K), mode, tmp_path, size=size, outcomes=tape, **settings)
    functions = {function for function, _, _ in tape.answers}
    assert {"describe", "confirm"} <= functions and len(functions) > 3
    for function, k, answer in tape.answers:
        allowed = {"describe": DESCRIBE, "confirm": CONFIRM, "forget": {"organization_id", "round", "n"}}
        assert {*answer} <= allowed.get(function, MASKED), function
        if function == "forget":  # it reads no rows
            assert answer["n"] == 0
        elif function == "describe":
            assert {*answer["entry"]} == {"S", "E", "D", "version"}
            assert len(answer["block"]) == (0 if mode == "masked" else 5)
            assert answer.get("hospital_totals") == (None if mode == "masked" else "told")  # the study's
        elif function == "confirm":
            assert answer.get("colluders") == (None if mode == "masked" else 1)  # the study's
            [own] = {a["entry"]["S"] for f, who, a in tape.answers if f == "describe" and who == k}
            assert own not in answer["tags"] and len(answer["tags"]) == (3 if mode == "masked" else 4)
            assert all(re.fullmatch("[0-9a-f]{64}", tag) for tag in answer["tags"].values())
        else:
            assert re.fullmatch("[0-9a-f]{64}", answer["T"])
    assert result["per_node"] == []  # a result names nobody's rows, losses or distances
    text = str({name: part for name, part in result.items() if name != "settings"})
    assert "distance" not in text and "drift" not in text


def test_the_description_counts_no_rows(tmp_path):
    """With words and missing values: names of columns and levels, and no numbers."""
    tape = Tape()
    run("v6_fedavg", clinics(3), "masked", outcomes=tape, **{**QUICK, "rounds": 1, "preprocess": STEPS[0]})
    for _, _, answer in (a for a in tape.answers if a[0] == "describe"):
        said = {**answer}
        for name in ("organization_id", "round", "entry", "block", "score_bands"):
            said.pop(name)
        assert not re.search(r"\d{2}", str(said).replace("x0", "").replace("x1", ""))
    assert {*answer} == DESCRIBE - {"classes", "hospital_totals"}


def test_masked_words_are_noise():
    """Each node's words of a job, and each function's."""
    tape = Tape()
    settings = {**QUICK, "rounds": 6, "model": "fnn:hidden=60"}
    run("v6_fedavg", nodes(4), "masked", outcomes=tape, **settings)
    for k in (1, 2, 3, 4):
        for bits in (32, 64):
            assert looks_random(b"".join(words(a, bits).tobytes() for _, who, a in tape.masked() if who == k))


def test_words_without_masks_are_no_noise(monkeypatch):
    """The test above would see it."""
    monkeypatch.setattr(under_masks.keystreams, "masked", without_masks)
    tape = Tape()
    run("v6_fedavg", nodes(4), "masked", outcomes=tape, **{**QUICK, "rounds": 6, "model": "fnn:hidden=60"})
    for bits in (32, 64):
        assert not looks_random(b"".join(words(a, bits).tobytes() for _, who, a in tape.masked() if who == 1))


@pytest.mark.parametrize("mode", ["masked", "pinned"])
def test_who_knows_all_but_two_learns_their_sum(mode, tmp_path, monkeypatch):
    """The server and three of five hospitals, which tell it their pair keys: the other two's words are still noise."""
    unmasked: dict[tuple[bytes, bytes, int], np.ndarray] = {}  # by mask, S and bytes of a word
    shared: dict[bytes, dict[bytes, bytes]] = {}
    real = under_masks.keystreams.masked

    def noted(q, own, keys, mask):
        shared[own] = keys
        unmasked[mask, own, q.dtype.itemsize] = q.copy()
        return real(q, own, keys, mask)

    monkeypatch.setattr(under_masks.keystreams, "masked", noted)
    tape = Tape()
    settings = {**QUICK, "rounds": 4, "model": "fnn:hidden=60"}
    size = None if mode == "masked" else 5
    run("v6_fedavg", nodes(5), mode, tmp_path, size=size, outcomes=tape, **settings)
    S = {k: bytes.fromhex(a["entry"]["S"]) for f, k, a in tape.answers if f == "describe"}
    honest = (2, 4)
    left: dict[int, list[np.ndarray]] = {2: [], 4: []}
    by_T: dict[str, dict[int, dict]] = {}
    for _, k, answer in tape.masked():
        by_T.setdefault(answer["T"], {})[k] = answer
    for T, answers in by_T.items():
        mask = notation.H("kept", bytes.fromhex(T), b"")  # these nodes keep nothing that their answers depend on
        for bits in (32, 64):
            rest = {}
            for k in honest:
                y = words(answers[k], bits).copy()
                for other in (1, 3, 5):  # the colluders remove the masks that they share with it
                    stream = under_masks.keystreams.mask(shared[S[other]][S[k]], mask, bits, y.size)
                    y = y - stream if S[other] > S[k] else y + stream
                rest[k] = y
                left[k].append(y.view(np.uint8))
                assert not np.array_equal(y, unmasked[mask, S[k], bits // 8]) or not y.size
            wanted = unmasked[mask, S[2], bits // 8] + unmasked[mask, S[4], bits // 8]
            assert np.array_equal(rest[2] + rest[4], wanted)
    for k in honest:
        assert looks_random(np.concatenate(left[k]).tobytes())


def test_one_missing_answer_leaves_noise():
    """Three of four answers open nothing."""
    tape = Tape()
    run("v6_fedavg", nodes(4), "masked", outcomes=tape, **{**QUICK, "rounds": 6, "model": "fnn:hidden=60"})
    sums: dict[str, np.ndarray] = {}
    for _, k, answer in tape.masked():
        if k != 3:
            y = words(answer, 32)
            sums[answer["T"]] = sums.get(answer["T"], np.zeros(y.size, np.uint32)) + y
    assert looks_random(b"".join(y.tobytes() for y in sums.values()))


def test_no_mask_is_used_twice(tmp_path):
    """Over all requests and nodes of a job, no two answers have words in common."""
    tape = Tape()
    run("v6_scaffold", nodes(5), "pinned", tmp_path, size=5, outcomes=tape, **QUICK)
    answers = [a for _, _, a in tape.masked()]
    for bits in (32, 64):
        seen = np.concatenate([words(a, bits) for a in answers])
        assert len(np.unique(seen)) >= len(seen) - 2  # 32-bit words meet by chance
    assert len({a["T"] for a in answers}) * 5 == len(answers)
