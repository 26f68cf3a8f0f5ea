"""Masks cancel over a whole block, hide everything else, and are used once."""

import hashlib

import numpy as np
import pytest
import second
from hypothesis import given, settings
from hypothesis import strategies as st

from v6_federated.masks import keystreams
from v6_federated.masks.keystreams import mask, masked

T = bytes(range(32))
BITS = pytest.mark.parametrize("bits", [32, 64])


def keys_of(n):
    """Invented pair keys of n nodes: what masks need of an agreement."""
    S = [hashlib.sha256(b"S%d" % i).digest() for i in range(n)]
    return S, [
        {S[j]: hashlib.sha256(b"%d %d" % (min(i, j), max(i, j))).digest() for j in range(n) if j != i} for i in range(n)
    ]


def test_vectors(vectors):
    for members, block in zip(vectors["study"]["blocks"], vectors["blocks"], strict=True):
        S = [bytes.fromhex(vectors["hospitals"][i]["S"]) for i in members]
        T = bytes.fromhex(block["T"])
        K = [{} for _ in S]
        for made in block["pairs"]:
            K[made["of"]][S[made["with"]]] = bytes.fromhex(made["K"])
            for bits in (32, 64):
                assert mask(bytes.fromhex(made["K"]), T, bits, 8).tolist() == made[f"mask{bits}"]
        for bits in (32, 64):
            total = np.zeros(len(block[f"sum{bits}"]), keystreams.WORDS[bits])
            for own, keys, answer in zip(S, K, block["answers"], strict=True):
                y = masked(np.array(answer[f"q{bits}"], keystreams.WORDS[bits]), own, keys, T)
                assert y.tolist() == answer[f"y{bits}"]
                total += y
            assert total.tolist() == block[f"sum{bits}"]


@BITS
def test_both_implementations_mask_alike_across_parts(bits):
    size = keystreams.PART // 4 + 5  # several parts, the last not full
    assert mask(T, T, bits, size).tolist() == second.mask(T, bits, T, size)
    S, K = keys_of(3)
    words = np.arange(size, dtype=keystreams.WORDS[bits])
    for own, keys in zip(S, K, strict=True):
        assert masked(words, own, keys, T).tolist() == second.masked(words.tolist(), bits, own, keys, T)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 12), st.integers(0, 200), st.sampled_from([32, 64]), st.randoms())
def test_masks_cancel_over_any_block(n, size, bits, random):
    S, K = keys_of(n)
    words = [np.array([random.getrandbits(bits) for _ in range(size)], keystreams.WORDS[bits]) for _ in range(n)]
    order = list(range(n))
    random.shuffle(order)
    total = np.zeros(size, keystreams.WORDS[bits])
    for i in order:
        total += masked(words[i], S[i], K[i], T)
    assert (total == sum(words, np.zeros(size, keystreams.WORDS[bits]))).all()


@BITS
def test_masks_cancel_over_real_agreements(block_of, bits):
    block = block_of(4)
    words = [np.arange(10, dtype=keystreams.WORDS[bits]) * i for i in range(4)]
    total = sum(masked(w, e.S, K, T) for w, e, K in zip(words, block.entries, block.K, strict=True))
    assert (total == np.arange(10) * 6).all()


@BITS
def test_nothing_less_than_the_block_opens(bits):
    """The sum of all but one, for example of the hospitals that work with the server, stays masked."""
    S, K = keys_of(4)
    zeros = np.zeros(1000, keystreams.WORDS[bits])
    rest = sum(masked(zeros, S[i], K[i], T) for i in range(3))
    assert np.count_nonzero(rest) == 1000


@BITS
def test_masks_that_were_made_for_different_requests_do_not_cancel(bits):
    """Central sends one node another model: the sum of the block is noise."""
    S, K = keys_of(3)
    zeros = np.zeros(1000, keystreams.WORDS[bits])
    other = bytes(32)
    total = sum(masked(zeros, S[i], K[i], other if i == 2 else T) for i in range(3))
    assert np.count_nonzero(total) == 1000


def test_transcripts_keys_and_widths_have_unrelated_masks():
    other = bytes([1]) + T[1:]
    streams = [mask(K, t, 64, 2000).view("<u4") for K in (T, other) for t in (T, other)] + [mask(T, T, 32, 4000)]
    for i, a in enumerate(streams):
        for b in streams[:i]:
            assert np.count_nonzero(a == b) == 0


@BITS
def test_masked_words_of_one_hospital_look_uniform(bits):
    """Chi-square of the bytes and of the single bits, whatever was masked; keys are fixed, so the test is too.

    With 255 degrees of freedom, chi-square exceeds 351 with probability 6e-5, and falls below 175 with 6e-5. The count
    of ones in B fair bits deviates by more than 4 sqrt(B) / 2 with 6e-5.
    """
    S, K = keys_of(2)
    for words in (np.zeros(100_000), np.full(100_000, 2**30), np.arange(100_000) % 7):
        y = masked(words.astype(keystreams.WORDS[bits]), S[0], K[0], T)
        counts = np.bincount(y.view(np.uint8), minlength=256)
        expected = y.nbytes / 256
        assert 175 < ((counts - expected) ** 2 / expected).sum() < 351
        ones = np.unpackbits(y.view(np.uint8)).sum(dtype=np.int64)
        assert abs(ones - y.nbytes * 4) < 4 * (y.nbytes * 8) ** 0.5 / 2


def test_words_that_cannot_be_masked_are_refused():
    S, K = keys_of(2)
    for words in (np.zeros(3), np.zeros(3, np.int64), np.zeros((3, 1), np.uint32)):
        with pytest.raises(ValueError, match="vector of uint32 or uint64"):
            masked(words, S[0], K[0], T)
    for keys in ({}, {S[0]: T}):
        with pytest.raises(ValueError, match="at least one"):
            masked(np.zeros(3, np.uint32), S[0], keys, T)


def test_a_mask_longer_than_the_counter_is_refused():
    with pytest.raises(ValueError, match="at most"):
        list(keystreams._parts(T, T, 32, 2**37))


def test_words_are_not_changed_in_place():
    S, K = keys_of(2)
    words = np.zeros(5, np.uint32)
    masked(words, S[0], K[0], T)
    assert not words.any()
