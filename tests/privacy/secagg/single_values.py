"""The single values of vectors.json, computed by ``second``: of seven hospitals in blocks of three and four."""

import hashlib
import math
from pathlib import Path

import second

FILE = Path(__file__).with_name("vectors.json")
DTYPES = {"f4": "float32", "f8": "float64"}

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
REQUEST = {
    "seq": 7,
    "round": 2,
    "method": "fedavg",
    "function": "client_update",
    "layout": [1, 303, second.layout_digest(ITEMS), UNITS],
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


def terms(items, units):
    """Each array of words of a layout, without 1, f and the checks."""
    return [
        {"name": item[0], "bits": width, "shape": item[2], "exponent": e}
        for item, width, exponents in second.with_units(items, units)
        for e in exponents or [None]
    ]


def transcript(R, request):
    arrays = {name: (DTYPES[kind], *of) for name, (kind, *of) in request["arrays"].items()}
    names = ("seq", "round", "method", "function", "layout", "arguments")
    digests = [second.array_digest(name, *arrays[name]) for name in sorted(arrays)]
    return second.transcript(R, *(request[name] for name in names), digests)


def entries_of(block, version):
    return [{name: h[name].hex() for name in "SED"} | {"version": version} for h in block]


def vectors():
    """All values of the protocol for seven hospitals in a block of three and one of four."""

    def seed(*parts):
        return hashlib.sha256(repr(parts).encode()).digest()

    hospitals = []
    for i in range(7):
        s, e = seed("s", i), seed("e", i)
        hospitals.append(
            {"name": f"Hospital {i}", "s": s, "S": second.public(s), "e": e, "E": second.public(e), "D": seed("D", i)}
        )
    job, version = "vectors", "1.0.0"
    study = {"name": "Vectors", "version": 1, "colluders": 0, "schema": hashlib.sha256(b"").hexdigest()}
    study |= {"hospitals_a_person": 2, "hospital_totals": "hidden"}
    members = [hospitals[:3], hospitals[3:]]
    file = study | {"blocks": [[{"name": h["name"], "key": second.write_key(h["S"])} for h in b] for b in members]}
    digest = second.study_digest(file)
    blocks = [_block(block, digest, job, version) for block in members]
    return plain(
        {
            "protocol": second.PROTOCOL,
            "job": job,
            "version": version,
            "hospitals": [h | {"written": second.write_key(h["S"])} for h in hospitals],
            "study": study | {"blocks": [[0, 1, 2], [3, 4, 5, 6]], "digest": digest, "code": second.study_code(file)},
            "masked_study": second.H("masked", job),
            "layout": {
                "items": ITEMS,
                "units": UNITS,
                "digest": second.layout_digest(ITEMS),
                "terms": terms(ITEMS, UNITS),
            },
            "request": REQUEST,
            "canonical_arguments": second.canonical(REQUEST["arguments"]),
            "blocks": blocks,
            "negatives": _negatives(members[0], blocks[0], digest, job, version),
        }
    )


def _block(block, study, job, version):
    R = second.roster_digest(study, job, entries_of(block, version))
    T = transcript(R, REQUEST)
    total = len(block) * (len(block) + 1) // 2
    pairs, answers = [], []
    for i, own in enumerate(block):
        keys = {}
        for j, peer in enumerate(block):
            if i == j:
                continue
            K = keys[peer["S"]] = second.pair_key(study, job, own["s"], own["e"], peer["S"], peer["E"])
            made = {"of": i, "with": j, "K": K, "tag": second.tag(K, R, own["S"], peer["S"])}
            pairs.append(made | {"mask32": second.mask(K, 32, T, 8), "mask64": second.mask(K, 64, T, 8)})
        share = (i + 1) / total
        values = {
            "update": [share * x for x in (0.3 * i, -1.5, 7.75, 2.0**-27)],
            "rows": [100 + i],
            "loss": [i / 3, -1000.25],
        }
        # values are after the weight: here all weights count as one
        full = second.with_units([[name, "one", *more] for name, _, *more in ITEMS], UNITS)
        q = dict(zip((32, 64), second.words(full, values, 0, None, len(block), bytes(32), T), strict=True))
        y = {bits: second.masked(q[bits], bits, own["S"], keys, T) for bits in q}
        answers.append({"share": share, "values": values, "q32": q[32], "q64": q[64], "y32": y[32], "y64": y[64]})
    sums = {b: [sum(column) % 2**b for column in zip(*(a[f"y{b}"] for a in answers), strict=True)] for b in (32, 64)}
    e = UNITS[0][1]
    decoded = {
        "update": second.decoded(sums[32], 32, e),
        "rows": second.decoded(sums[64][2:3], 64, None),
        "loss": second.decoded(sums[64][3:5], 64, ITEMS[2][3]),
        "checks": [
            second.decoded([word], 64, each)[0]
            for each, word in zip(second.check_exponents(e), sums[64][5:], strict=True)
        ],
    }
    return {
        "R": R, "T": T, "pairs": pairs, "answers": answers,
        "sum32": sums[32], "sum64": sums[64], "decoded": decoded,
    }  # fmt: skip


def _negatives(block, made, study, job, version):
    swapped = [dict(h) for h in block]
    swapped[0]["E"], swapped[1]["E"] = swapped[1]["E"], swapped[0]["E"]
    R = second.roster_digest(study, job, entries_of(swapped, version))
    K = made["pairs"][0]["K"]
    wrong = bytearray(made["pairs"][0]["tag"])
    wrong[31] ^= 1
    other = REQUEST | {"arrays": REQUEST["arrays"] | {"b": ["f8", [1], [math.nextafter(0.5, 1)]]}}
    wrapped = [[1.5, -9.0, 2.0**40, -(2.0**31), 1e290], [2**63 - 1, -1, -(2**63), 2**53 + 1]]
    of = [{"bits": 32, "exponent": 0}, {"bits": 64, "exponent": None}]
    written = second.write_key(block[0]["S"])
    return {
        "zero_points": ZERO_POINTS,
        "not_shortest": (2**255 - 19 + 9).to_bytes(32, "little"),  # another form of the point 9
        "mistyped": written[:-1] + ("A" if written[-1] != "A" else "B"),
        "swapped_E": {"R": R, "tag": second.tag(K, R, block[0]["S"], block[1]["S"])},
        "wrong_tag": bytes(wrong),
        "another_model": {"T": transcript(made["R"], other), "request": other},
        "wrapped": [
            {"values": values, **term, "words": [second.rounded(x, *term.values()) for x in values]}
            for values, term in zip(wrapped, of, strict=True)
        ],
    }


def plain(value):
    """JSON, with bytes in hexadecimal."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value
