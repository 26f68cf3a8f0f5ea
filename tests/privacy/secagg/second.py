"""A second implementation of docs/secure-aggregation.md that shares no code with the package.

It uses hashlib, hmac, struct, exact fractions, and X25519 and ChaCha20 of cryptography; nothing is fast. It makes
vectors.json: python tests/privacy/secagg/second.py
"""

import hashlib
import hmac
import json
import math
import struct
from fractions import Fraction
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

FILE = Path(__file__).with_name("vectors.json")
NAME = b"v6-federated/secagg/1"


def be(number):
    return struct.pack(">Q", number)


def enc(*parts):
    out = NAME
    for part in parts:
        if isinstance(part, int):
            part = be(part)
        if isinstance(part, str):
            part = part.encode("utf-8")
        out += be(len(part)) + part
    return out


def H(*parts):
    return hashlib.sha256(enc(*parts)).digest()


def mac(key, message):
    return hmac.new(key, message, hashlib.sha256).digest()


def expand(key, info, length=32):
    out, block, counter = b"", b"", 1
    while len(out) < length:
        block = mac(key, block + info + bytes([counter]))
        out += block
        counter += 1
    return out[:length]


def hkdf(salt, ikm, info, length=32):
    return expand(mac(salt, ikm), info, length)


def base32(data):
    bits = "".join(f"{byte:08b}" for byte in data)
    letters = ["ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[int(bits[i : i + 5], 2)] for i in range(0, len(bits), 5)]
    return "-".join("".join(letters[i : i + 4]) for i in range(0, len(letters), 4))


def public(private):
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def dh(private, other):
    return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(other))


def written(key):
    return base32(key + H("key", key)[:3])


def study_digest(study):
    """Of name, version, colluders, hospitals_a_person, schema, hospital_totals, "blocks": [[[name, key], ...], ...]."""
    blocks = sorted(sorted(block, key=lambda h: h[1]) for block in study["blocks"])
    blocks.sort(key=lambda block: block[0][1])
    digests = [H("block", *[part for hospital in block for part in hospital]) for block in blocks]
    said = [study["colluders"], study["hospitals_a_person"], study["schema"] or "", study["hospital_totals"]]
    return H("study", study["name"], study["version"], *said, *digests)


def roster(study, job, entries):
    """Of [(S, E, D, version), ...]."""
    return H("roster", study, job, *[part for entry in sorted(entries) for part in entry])


def pair(s, e, peer_S, peer_E, study, job):
    S, E = public(s), public(e)
    if peer_S > S:
        secret = dh(s, peer_S) + dh(e, peer_E) + dh(e, peer_S) + dh(s, peer_E)
        order = (S, E, peer_S, peer_E)
    else:
        secret = dh(s, peer_S) + dh(e, peer_E) + dh(s, peer_E) + dh(e, peer_S)
        order = (peer_S, peer_E, S, E)
    return hkdf(study, secret, enc("pair", job, *order))


def tag(K, sender, receiver, R):
    return mac(expand(K, enc("confirm", R)), enc("tag", sender, receiver, R))


def number(x):
    """A number as ECMAScript writes it."""
    if x == 0:
        return "0"
    if x < 0:
        return "-" + number(-x)
    if isinstance(x, int):
        return str(x)
    mantissa, _, exponent = repr(x).partition("e")
    whole, _, rest = mantissa.partition(".")
    rest = "" if rest == "0" else rest
    digits, point = (whole + rest).lstrip("0"), len(whole) + int(exponent or 0)
    point -= len(whole + rest) - len((whole + rest).lstrip("0"))
    digits = digits.rstrip("0")
    k = len(digits)
    if k <= point <= 21:
        return digits + "0" * (point - k)
    if 0 < point <= 21:
        return digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    sign = "+" if point > 0 else "-"
    return digits[0] + ("." + digits[1:] if k > 1 else "") + f"e{sign}{abs(point - 1)}"


def canonical(value):
    """RFC 8785."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, str):
        short = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 92: "\\"}
        letters = [f"\\{short[ord(c)]}" if ord(c) in short else f"\\u{ord(c):04x}" if ord(c) < 32 else c for c in value]
        return '"' + "".join(letters) + '"'
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(canonical, value)) + "]"
    keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
    return "{" + ",".join(canonical(key) + ":" + canonical(value[key]) for key in keys) + "}"


def array_digest(name, kind, shape, elements):
    letters = {"f4": "f", "f8": "d", "i8": "q"}
    content = struct.pack(f"<{len(elements)}{letters[kind]}", *elements)
    return H("array", name, kind, len(shape), *shape, hashlib.sha256(content).digest())


def transcript(R, request):
    arrays = [array_digest(name, *request["arrays"][name]) for name in sorted(request["arrays"])]
    return H(
        "round",
        R,
        request["seq"],
        request["round"],
        request["method"],
        request["function"],
        canonical(request["layout"]).encode(),
        canonical(request["arguments"]).encode(),
        *arrays,
    )


def layout_digest(items):
    """Of [[name, weight, shape, unit, additive], ...]."""
    return H("layout", canonical(items).encode())


def terms(items, units):
    """The terms of an answer, whose words follow in this order; the request has a unit for each mean and each range."""
    found, units = [], list(units)
    for name, _, shape, unit, _ in items:
        chosen = unit == "mean" or isinstance(unit, list)
        scales = [units.pop(0)] if chosen else [[64, e] for e in (range(-20, 261, 20) if unit == "any" else [unit])]
        found += [{"name": name, "bits": bits, "shape": shape, "exponent": e} for bits, e in scales]
    return found


def mask(K, T, bits, size):
    key = expand(K, enc(f"mask{bits}", T))
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(size * bits // 8))
    return list(struct.unpack(f"<{size}{ {32: 'I', 64: 'Q'}[bits] }", stream))


def masked(words, own, keys, T, bits):
    result = list(words)
    for peer, K in keys.items():
        for i, m in enumerate(mask(K, T, bits, len(words))):
            result[i] = (result[i] + (m if peer > own else -m)) % 2**bits
    return result


def encode(term, values):
    """Words; exact. Numbers of any size wrap."""
    bits, e = term["bits"], term["exponent"]
    unit = Fraction(1) if e is None else Fraction(2) ** (e - {32: 30, 64: 56}[bits])
    return [round(Fraction(x) / unit) % 2**bits for x in values]  # half to even


def dither(secret, T, key, size):
    """Two numbers of two words: Box and Muller. The last digits depend on the machine's logarithm."""
    half = (size + 1) // 2
    words = [word >> 11 for word in mask(expand(secret, enc("dither", T, key)), T, 64, 2 * half)]
    first, last = [], []
    for v, w in zip(words[:half], words[half:], strict=True):
        length, angle = 2 * math.sqrt(-2 * math.log((v + 1) / 2**53)), 2 * math.pi * w / 2**53
        first.append(length * math.cos(angle))
        last.append(length * math.sin(angle))
    return (first + last)[:size]


def factors(T, size):
    """Odd numbers 2 a + 1, where each a is two bytes, with a sign, of a mask with T as its key."""
    key = expand(T, enc("mask32", enc("factors")))
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(2 * size))
    return [2 * a + 1 for a in struct.unpack(f"<{size}h", stream)]


CHECKS = (32, 72, 112, 152, 192, 232)


def checks(term, values, T):
    """The words of the checks of a term."""
    total = sum((Fraction(x) * factor for x, factor in zip(values, factors(T, len(values)), strict=True)), Fraction(0))
    return [encode({"bits": 64, "exponent": term["exponent"] + more}, [total])[0] for more in CHECKS]


def decode(term, words):
    bits, e = term["bits"], term["exponent"]
    signed = [word - 2**bits if word >= 2 ** (bits - 1) else word for word in words]
    return signed if e is None else [float(q * Fraction(2) ** (e - {32: 30, 64: 56}[bits])) for q in signed]


# ---- vectors

ZERO_POINTS = [  # small order: every private key agrees with them on zero
    "00" * 32,
    "01" + "00" * 31,
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]
ITEMS = [
    ["update", "share", [2, 2], "mean", "hospital"],
    ["rows", "one", [], None, "row"],
    ["loss", "one", [2], 10, "row"],
]  # the checks of the update follow
UNITS = [[32, 3]]
LAYOUT = terms(ITEMS, UNITS)
REQUEST = {
    "seq": 7,
    "round": 2,
    "method": "fedavg",
    "function": "client_update",
    "layout": [1, 303, layout_digest(ITEMS).hex(), UNITS],
    "arguments": {
        "lr": 0.1,
        "epochs": 5,
        "momentum": 1e-07,
        "decay": 1.0,
        "note": 'ä"\n',
        "classes": [0, 1],
        "é": None,
    },
    "arrays": {"b": ["f8", [1], [0.5]], "W": ["f4", [2, 2], [0.25, -1.0, 3.0, 0.0]]},
}


def vectors():
    """All values of the protocol for seven hospitals in a block of three and one of four."""
    seed = lambda *parts: hashlib.sha256(repr(parts).encode()).digest()  # noqa: E731
    hospitals = []
    for i in range(7):
        s, e = seed("s", i), seed("e", i)
        hospitals.append({"name": f"Hospital {i}", "s": s, "S": public(s), "e": e, "E": public(e), "D": seed("D", i)})
    job, version = "vectors", "1.0.0"
    study = {"name": "Vectors", "version": 1, "colluders": 0, "schema": hashlib.sha256(b"").hexdigest()}
    study |= {"hospitals_a_person": 2, "hospital_totals": "hidden"}
    members = [hospitals[:3], hospitals[3:]]
    digest = study_digest(study | {"blocks": [[(h["name"], h["S"]) for h in block] for block in members]})
    blocks = [_block(block, digest, job, version) for block in members]
    return _hex(
        {
            "protocol": NAME.decode(),
            "job": job,
            "version": version,
            "hospitals": [h | {"written": written(h["S"])} for h in hospitals],
            "study": study | {"blocks": [[0, 1, 2], [3, 4, 5, 6]], "digest": digest, "code": base32(digest[:30])},
            "masked_study": H("masked", job),
            "layout": {"items": ITEMS, "units": UNITS, "digest": layout_digest(ITEMS), "terms": LAYOUT},
            "request": REQUEST,
            "canonical_arguments": canonical(REQUEST["arguments"]),
            "blocks": blocks,
            "negatives": _negatives(members[0], blocks[0], digest, job, version),
        }
    )


def _block(block, study, job, version):
    R = roster(study, job, [(h["S"], h["E"], h["D"], version) for h in block])
    T = transcript(R, REQUEST)
    total = len(block) * (len(block) + 1) // 2
    pairs, answers = [], []
    for i, own in enumerate(block):
        keys = {}
        for j, peer in enumerate(block):
            if i == j:
                continue
            K = keys[peer["S"]] = pair(own["s"], own["e"], peer["S"], peer["E"], study, job)
            made = {"of": i, "with": j, "K": K, "tag": tag(K, own["S"], peer["S"], R)}
            pairs.append(made | {"mask32": mask(K, T, 32, 8), "mask64": mask(K, T, 64, 8)})
        share = (i + 1) / total
        values = {
            "update": [share * x for x in (0.3 * i, -1.5, 7.75, 2.0**-27)],
            "rows": [100 + i],
            "loss": [i / 3, -1000.25],
        }
        q = {32: [], 64: []}
        for term in LAYOUT:
            q[term["bits"]] += encode(term, values[term["name"]])
        q[64] = [1, 0, *q[64], *checks(LAYOUT[0], values["update"], T)]
        y = {bits: masked(q[bits], own["S"], keys, T, bits) for bits in q}
        answers.append({"share": share, "values": values, "q32": q[32], "q64": q[64], "y32": y[32], "y64": y[64]})
    sums = {b: [sum(column) % 2**b for column in zip(*(a[f"y{b}"] for a in answers), strict=True)] for b in (32, 64)}
    decoded = {
        "update": decode(LAYOUT[0], sums[32]),
        "rows": decode(LAYOUT[1], sums[64][2:3]),
        "loss": decode(LAYOUT[2], sums[64][3:5]),
        "checks": [
            decode({"bits": 64, "exponent": LAYOUT[0]["exponent"] + more}, [word])[0]
            for more, word in zip(CHECKS, sums[64][5:], strict=True)
        ],
    }
    return {
        "R": R, "T": T, "pairs": pairs, "answers": answers,
        "sum32": sums[32], "sum64": sums[64], "decoded": decoded,
    }  # fmt: skip


def _negatives(block, made, study, job, version):
    swapped = [dict(h) for h in block]
    swapped[0]["E"], swapped[1]["E"] = swapped[1]["E"], swapped[0]["E"]
    R = roster(study, job, [(h["S"], h["E"], h["D"], version) for h in swapped])
    K = made["pairs"][0]["K"]
    wrong = bytearray(made["pairs"][0]["tag"])
    wrong[31] ^= 1
    other = REQUEST | {"arrays": REQUEST["arrays"] | {"b": ["f8", [1], [math.nextafter(0.5, 1)]]}}
    wrapped = [[1.5, -9.0, 2.0**40, -(2.0**31), 1e290], [2**63 - 1, -1, -(2**63), 2**53 + 1]]
    terms = [{"bits": 32, "exponent": 0}, {"bits": 64, "exponent": None}]
    return {
        "zero_points": ZERO_POINTS,
        "not_shortest": (2**255 - 19 + 9).to_bytes(32, "little"),  # another form of the point 9
        "mistyped": written(block[0]["S"])[:-1] + ("A" if written(block[0]["S"])[-1] != "A" else "B"),
        "swapped_E": {"R": R, "tag": tag(K, block[0]["S"], block[1]["S"], R)},
        "wrong_tag": bytes(wrong),
        "another_model": {"T": transcript(made["R"], other), "request": other},
        "wrapped": [
            {"values": values, **term, "words": encode(term, values)}
            for values, term in zip(wrapped, terms, strict=True)
        ],
    }


def _hex(value):
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: _hex(part) for key, part in value.items()}
    return [_hex(part) for part in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
