"""A second implementation of docs/secure-aggregation.md that shares no code with the package.

It uses hashlib, hmac, struct, exact fractions, and X25519 and ChaCha20 of cryptography; nothing is fast. node_runs.py
writes vectors.json, of which all is computed here but what real nodes have sent.
"""

import base64
import hashlib
import hmac
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


# ---- a node and central

SELDOM = ("exclude", "missing", "levels", "subgroup", "offset", "weights", "event", "time")  # of a job's data
CHOSEN = {"mean": {64: range(10, 171, 40), 32: range(-40, 41)}}  # widths and e that a request may choose


class Refused(Exception):
    """A node or central refuses what it was sent."""


def refuse_unless(right):
    if not right:
        raise Refused


def whole_number(value, least, end):
    return type(value) is int and least <= value < end


def secret_of(secret, purpose, message):
    return mac(secret, purpose.encode() + b"\0" + message)


def arrays_of(payload):
    """(type, shape, elements) by name."""
    letters, kinds = {"float32": "f", "float16": "e", "float64": "d"}, {"float64": "f8"}
    data = base64.b64decode(payload["data"], validate=True)
    letter = letters[payload["dtype"]]
    numbers = [number for (number,) in struct.iter_unpack(f"<{letter}", data)]
    found = {}
    for name, shape in payload["shapes"].items():
        size = math.prod(shape)
        found[name] = (kinds.get(payload["dtype"], "f4"), shape, numbers[:size])
        numbers = numbers[size:]
    refuse_unless(not numbers)
    return found


def words_payload(words, bits):
    data = struct.pack(f"<{len(words)}{ {32: 'I', 64: 'Q'}[bits] }", *words)
    return {"dtype": f"uint{bits}", "shapes": {"y": [len(words)]}, "data": base64.b64encode(data).decode()}


def words_of(payload, bits, size):
    refuse_unless({**payload, "data": ""} == {"dtype": f"uint{bits}", "shapes": {"y": [size]}, "data": ""})
    data = base64.b64decode(payload["data"], validate=True)
    refuse_unless(len(data) == size * bits // 8)
    return list(struct.unpack(f"<{size}{ {32: 'I', 64: 'Q'}[bits] }", data))


def one_form(job):
    """The job as T binds it."""
    data = {name: value for name, value in job["data"].items() if name not in SELDOM or value}
    said = {name: value for name, value in job.items() if name != "hospital_totals" or value}
    return {"aggregation": "plain", "privacy": None, **said, "data": data}


def told(job):
    """What may not change during a job, once keys are confirmed."""
    data = job["data"]
    names = ("label", "features", "classes", "categories", "holdout", "supervised", "regression")
    more = ("subgroup", "levels", "offset", "weights", "event", "time")
    of_data = {name: data.get(name) or None if name in more else data.get(name) for name in (*names, *more)}
    said = [job[name] for name in ("method", "seed", "participants", "minimum_rows", "privacy")]
    return canonical([*said, job.get("hospital_totals") or "", of_data])


def check_sums(sums, items):
    """The units of a request, which is about this layout."""
    refuse_unless(isinstance(sums, dict) and set(sums) == {"seq", "block", "rows", "layout", "units", "tags"})
    refuse_unless(whole_number(sums["seq"], 1, 2**31) and whole_number(sums["block"], 0, 2**53))
    refuse_unless(sums["rows"] is None or whole_number(sums["rows"], 1, 2**40))
    refuse_unless(sums["layout"] == layout_digest(items).hex() and isinstance(sums["tags"], dict))
    refuse_unless(sums["rows"] is not None or all(weight != "share" for _, weight, *_ in items))
    accepted = [
        CHOSEN["mean"] if unit == "mean" else {64: range(unit[0], unit[1] + 1)}
        for *_, unit, _ in items
        if unit == "mean" or isinstance(unit, list)
    ]
    refuse_unless(isinstance(sums["units"], list) and len(sums["units"]) == len(accepted))
    for unit, of in zip(sums["units"], accepted, strict=True):
        refuse_unless(isinstance(unit, list) and [*map(type, unit)] == [int, int] and unit[1] in of.get(unit[0], ()))
    return sums["units"]


def parts(items, units):
    """Like ``terms``, with the weight, the key and the checks of each."""
    found, units = [], list(units)
    for item in items:
        chosen = item[3] == "mean" or isinstance(item[3], list)
        for part in terms([item], [units.pop(0)] if chosen else []):
            name, weight, shape, unit, _ = item
            key = f"{weight} {name}" + ("" if part["exponent"] is None else f" 2^{part['exponent']}")
            mean = unit == "mean" and shape != []
            scales = [part["exponent"] + more for more in CHECKS if part["exponent"] + more <= 280] if mean else []
            size = math.prod(shape)
            found.append(part | {"weight": weight, "key": key, "size": size, "checks": scales, "ladder": unit == "any"})
    return found


def sizes(found):
    """How many words of 32 and of 64 bits an answer has."""
    of = {bits: sum(part["size"] for part in found if part["bits"] == bits) for bits in (32, 64)}
    return of[32], 2 + of[64] + sum(len(part["checks"]) for part in found)


def halvings(N):
    """The least L for which 2^L >= N."""
    return (N - 1).bit_length()


def weighted(weight, values, given, n, N, K):
    """Float64 throughout."""
    kind, _, divisor = weight.partition("/")
    if kind == "share":
        return [x * n * 2.0 ** -halvings(N) for x in values]
    if kind == "equal":
        x = K * given[divisor][0] if divisor else K
        return [value / x if x else value * 0 for value in values]
    return [x * n for x in values] if kind == "rows" else list(values)


def exact(weight, numbers, exponent, N):
    """Of whole numbers of 2^exponent, sums over the node's rows: what is rounded once."""
    exponent -= halvings(N) if weight == "share" else 0
    return [Fraction(int(number, 16)) * Fraction(2) ** exponent for number in numbers]


def node_words(found, given, n, N, K, secret, T):
    """What a node adds to a sum, before masks, without dither: words of 32 and of 64 bits."""
    q, of_checks = {32: [], 64: [1, 0]}, []
    coarse = sum(part["size"] for part in found if part["ladder"] and part["exponent"] > -20)
    blur = [(word >> 28) - 2**35 for word in mask(secret, H("blur", T), 64, coarse)]
    for part in found:
        values = given.get(part["name"])
        if isinstance(values, dict):
            values = exact(part["weight"], values["numbers"], values["exponent"], N)
            words = encode(part, values)
        elif part["exponent"] is None:
            words = encode(part, values)
        else:
            values = weighted(part["weight"], [float(x) for x in values], given, n, N, K)
            words = encode(part, values)
        if part["ladder"] and part["exponent"] > -20:
            words = [(word + more) % 2**64 for word, more in zip(words, blur, strict=False)]
            blur = blur[len(words) :]
        q[part["bits"]] += words
        if part["checks"]:
            of_checks += checks(part, values, T)[: len(part["checks"])]
    return q[32], q[64] + of_checks


def noise_words(found, secret, T):
    """What a node adds that cannot compute its part."""
    of32, of64 = sizes(found)
    return mask(secret, T, 32, of32), [1, *mask(secret, T, 64, of64)[1:]]


class Node:
    """A node, as far as the protocol goes. What its operator has set, and what it computes from rows, is given."""

    def __init__(self, organization, secret, s, study, minimum, version, bands, database, limits):
        self.organization, self.secret, self.s, self.study = organization, secret, s, study_of(study)
        self.minimum, self.version, self.bands, self.database = minimum, version, bands, database
        self.limits = limits
        self.jobs, self.log, self.steps = {}, {}, {}

    def hello(self, message, e, table):
        job = message["kwargs"]["job"]
        known = self.jobs.setdefault(job["key"], {})
        if not known:
            D = secret_of(self.secret, "db", enc(job["key"], table, self.limits))
            entry = {"S": public(self.s).hex(), "E": public(e).hex(), "D": D.hex(), "version": self.version}
            block = []
            if self.study is not None:
                of = [[S.hex() for _, S in sorted(block, key=lambda h: h[1])] for block in self.study["blocks"]]
                block = next(S for S in of if entry["S"] in S)
            known |= {"entry": entry, "block": block, "e": e, "D": D, "K": {}, "last": 0, "failed": False}
        mode = "masked" if self.study is None else "pinned"
        said = {"mode": mode, "entry": known["entry"], "block": known["block"], "score_bands": self.bands}
        return said | ({} if self.study is None else {"hospital_totals": self.study["hospital_totals"]})

    def _study(self, job):
        return H("masked", job) if self.study is None else study_digest(self.study)

    def confirm(self, message):
        job, roster_ = message["kwargs"]["job"], message["kwargs"]["roster"]
        refuse_unless(job["key"] in self.jobs)
        known, study = self.jobs[job["key"]], self._study(job["key"])
        for entry in roster_:
            refuse_unless(set(entry) == {"S", "E", "D", "version"})
        ordered = sorted(roster_, key=lambda entry: entry["S"])
        S = [entry["S"] for entry in ordered]
        refuse_unless(known["entry"] in ordered and len(set(S)) == len(S) >= self.minimum)
        refuse_unless(len({entry["E"] for entry in ordered}) == len(S))
        refuse_unless({entry["version"] for entry in ordered} == {self.version})
        refuse_unless(known["block"] == S or (self.study is None and len(S) == len(job["participants"])))
        refuse_unless(known.setdefault("agreed", (ordered, told(job))) == (ordered, told(job)))
        entries = [(*(bytes.fromhex(entry[name]) for name in "SED"), entry["version"]) for entry in ordered]
        known["R"] = roster(study, job["key"], entries)
        own = public(self.s)
        for peer, E, *_ in entries:
            if peer != own and peer not in known["K"]:
                known["K"][peer] = pair(self.s, known["e"], peer, E, study, job["key"])
        tags = {peer.hex(): tag(K, own, peer, known["R"]).hex() for peer, K in known["K"].items()}
        assumed = ("colluders", "hospitals_a_person")
        return {"tags": tags} | ({} if self.study is None else {name: self.study[name] for name in assumed})

    def answer(self, message, items, given, n, kept):
        """Of its own code's items, what the function has computed (None: it failed), its rows, T' of what it loaded."""
        arguments = dict(message["kwargs"])
        job, round_, sums = (arguments.pop(name) for name in ("job", "round", "sums"))
        payload = arguments.pop("arrays", None)
        units = check_sums(sums, items)
        hidden = self.study is not None and self.study["hospital_totals"] == "hidden"
        refuse_unless(not hidden or {additive for *_, additive in items} <= {"row", "nothing"})
        refuse_unless("agreed" in self.jobs.get(job["key"], {}))
        known, own = self.jobs[job["key"]], public(self.s)
        R = known["R"]
        if not known.get("confirmed"):
            for peer, K in known["K"].items():
                if sums["tags"].get(peer.hex(), {}).get(own.hex()) != tag(K, peer, own, R).hex():
                    known.pop("agreed")
                    raise Refused
            known["confirmed"] = True
        refuse_unless(told(job) == known["agreed"][1])
        request = {
            "seq": sums["seq"],
            "round": round_,
            "method": job["method"],
            "function": message["method"],
            "layout": [sums["block"], sums["rows"], sums["layout"], units],
            "arguments": {"evaluate": None, "bands": 0, **arguments, "job": one_form(job), "database": self.database},
            "arrays": {} if payload is None else arrays_of(payload),
        }
        T = transcript(R, request)
        if self.log.get((job["key"], T)) is not None:
            return self.log[job["key"], T]
        if (job["key"], T) not in self.log:
            refuse_unless(sums["seq"] > known["last"])
            known["last"] = sums["seq"]
        found, noise = parts(items, units), secret_of(self.secret, "noise", T)
        q32, q64 = noise_words(found, noise, T)
        known["failed"] |= given is None
        if not known["failed"]:
            try:
                q32, q64 = node_words(found, given, n, sums["rows"], len(known["K"]) + 1, noise, T)
            except (OverflowError, ValueError):  # a number is not finite
                known["failed"] = True
        kept_T = H("kept", T, kept)
        y = [masked(q, own, known["K"], kept_T, bits) for q, bits in ((q32, 32), (q64, 64))]
        said = {
            "organization_id": self.organization,
            "round": round_,
            "T": T.hex(),
            "y32": words_payload(y[0], 32),
            "y64": words_payload(y[1], 64),
        }
        self.log[job["key"], T] = said
        self.steps[T.hex()] = {
            "arguments": canonical(request["arguments"]), "kept_T": kept_T, "secret": noise, "q32": q32, "q64": q64
        }  # fmt: skip
        return said


class Central:
    """Central, as far as the protocol goes."""

    def __init__(self, hellos):
        """Of the answers to hello by organization, all of whose blocks are whole."""
        by_key = {said["entry"]["S"]: k for k, said in hellos.items()}
        whole = {tuple(sorted(by_key[S] for S in said["block"] or by_key)) for said in hellos.values()}
        self.blocks = sorted(whole)
        self.rosters = {block[0]: [hellos[k]["entry"] for k in block] for block in self.blocks}
        self.hellos, self.tags, self.rows, self.units, self.seq = hellos, {}, {}, {}, 0

    def confirmed(self, k, said):
        block = next(block for block in self.blocks if k in block)
        self.tags.setdefault(block[0], {})[self.hellos[k]["entry"]["S"]] = said["tags"]

    def request(self, function, first, items, e=None):
        """What a request to the block with this first member asks for; e is of units that follow from elsewhere."""
        units = []
        for name, weight, _, unit, _ in items:
            if isinstance(unit, list):
                units.append([64, e])
            elif unit == "mean":
                units.append(self.units.get((first, function, weight, name), [64, 10]))
        self.seq += 1
        digest = layout_digest(items).hex()
        rows, tags = self.rows.get(first), self.tags.get(first, {})
        return {"seq": self.seq, "block": first, "rows": rows, "layout": digest, "units": units, "tags": tags}

    def opened(self, function, first, items, sums, answers):
        """The number of nodes, whether some have failed, and if none has, the sums and what has wrapped."""
        T = {said["T"] for said in answers}
        refuse_unless(len(T) == 1)
        found = parts(items, sums["units"])
        words = {}
        for bits, size in zip((32, 64), sizes(found), strict=True):
            columns = zip(*(words_of(said[f"y{bits}"], bits, size) for said in answers), strict=True)
            words[bits] = [sum(column) % 2**bits for column in columns]
        nodes, failed = words[64][:2]
        refuse_unless(nodes == len(self.rosters[first]))
        if failed:
            return {"nodes": nodes, "failed": True}
        at, raw, result = {32: 0, 64: 2}, {}, {}
        for part in found:
            raw[part["key"]] = words[part["bits"]][at[part["bits"]] : at[part["bits"]] + part["size"]]
            at[part["bits"]] += part["size"]
        for weight, name, ladder in dict.fromkeys((part["weight"], part["name"], part["ladder"]) for part in found):
            same = [part for part in found if (part["weight"], part["name"]) == (weight, name)]
            if ladder:
                result[f"{weight} {name}"] = climbed([(part["exponent"], raw[part["key"]]) for part in same])
            else:
                result[same[0]["key"]] = decode(same[0], raw[same[0]["key"]])
        wrapped, i = [], at[64]
        for part in found:
            if not part["checks"]:
                continue
            of = zip(part["checks"], words[64][i:], strict=False)
            checked = [(e, decode({"bits": 64, "exponent": e}, [word])[0]) for e, word in of]
            i += len(checked)
            of_T = factors(bytes.fromhex(answers[0]["T"]), part["size"])
            total = sum(x * f for x, f in zip(result[part["key"]], of_T, strict=True))
            if any(differs(part["exponent"], e, total, value) for e, value in checked):
                wrapped.append(part["key"])
        for part in found:
            if part["weight"] == "share":
                result[part["key"]] = [x * 2.0 ** halvings(sums["rows"]) / sums["rows"] for x in result[part["key"]]]
        self.tags.pop(first, None)
        if not wrapped:
            self.rows.setdefault(first, result["one n"][0])
        for part in found:
            key = first, function, part["weight"], part["name"]
            if part["key"] in wrapped:
                self.units[key] = [64, 10 if part["bits"] == 32 else part["exponent"] + 40]
            elif part["checks"] and not wrapped:
                self._next(key, max(map(abs, result[part["key"]])))
        return {"nodes": nodes, "failed": False, "sums": result, "wrapped": wrapped}

    def _next(self, key, largest):
        e = min(max(math.ceil(math.log2(largest)) + 3, -40), 40) if largest else -40
        bits, before = self.units.get(key, [64, 0])
        self.units[key] = [32, max(e, before - 1) if bits == 32 else e]


def climbed(rungs):
    """The digits of the finest scale of one sum in several units, the finest first: (e, words)."""
    found = []
    first = rungs[0][0]
    for column in zip(*(words for _, words in rungs), strict=True):
        signed = [(w - 2**64 if w >= 2**63 else w) * 2 ** (e - first) for w, (e, _) in zip(column, rungs, strict=True)]
        value = signed.pop()
        for now, (e, _) in reversed([*zip(signed, rungs[:-1], strict=True)]):
            wraps_at = 2 ** (64 + e - first)
            value = now + (value - now + wraps_at // 2) // wraps_at * wraps_at
        found.append(float(value * Fraction(2) ** (first - 56)))
    return found


def differs(e, of_check, total, said):
    """Whether a check shows that numbers have wrapped."""
    off = math.remainder(total - said, 2.0 ** (of_check + 8))
    return abs(off) > max(2.0 ** (e + 1), 2.0 ** (of_check - 47))


def study_of(text):
    """The study in a study.json."""
    if text is None:
        return None
    blocks = [[(h["name"], parsed(h["key"])) for h in block] for block in text["blocks"]]
    return text | {"blocks": blocks}


def parsed(letters):
    """The key that ``written`` wrote."""
    data = base64.b32decode(letters.replace("-", ""))
    refuse_unless(H("key", data[:32])[:3] == data[32:])
    return data[:32]


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
    return plain(
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


def plain(value):
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value
