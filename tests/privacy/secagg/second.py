"""A second implementation of v6-federated/secagg/1: a node and a central.

It was written from docs/secure-aggregation.md alone, by somebody who had read no other part of this project, and shares
no code with the package. Where the page turned out to be silent, both it and this file have been completed. Nothing is
fast. Nothing is dithered: ``dither`` is a function of its own.

A node keeps everything in memory. What its function has computed is given to it. Messages and answers are parsed JSON.
"""

import base64
import hashlib
import hmac
import json
import math
import re
import struct
from contextlib import suppress
from fractions import Fraction

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

PROTOCOL = "v6-federated/secagg/1"
ANY = list(range(-20, 261, 20))
ABOUT_JOB = ("method", "seed", "participants", "minimum_rows", "privacy", "hospital_totals")
ABOUT_DATA = (
    *("label", "features", "classes", "categories", "holdout", "supervised", "regression"),
    *("subgroup", "levels", "offset", "weights", "event", "time"),
)
OPTIONAL = ("exclude", "missing", "levels", "subgroup", "offset", "weights", "event", "time")


class Refused(Exception):
    """A node or central refuses what it was sent."""


def need(condition, reason):
    if not condition:
        raise Refused(reason)


# ---- notation


def part(p) -> bytes:
    if isinstance(p, str):
        return p.encode()
    if isinstance(p, int) and not isinstance(p, bool):
        return struct.pack(">Q", p)
    return bytes(p)


def enc(*parts) -> bytes:
    encoded = PROTOCOL.encode()
    for p in map(part, parts):
        encoded += struct.pack(">Q", len(p)) + p
    return encoded


def H(*parts) -> bytes:
    return hashlib.sha256(enc(*parts)).digest()


def mac(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).digest()


def own(secret: bytes, purpose: str, message: bytes) -> bytes:
    return mac(secret, purpose.encode() + b"\0" + message)


def expand(key: bytes, info: bytes, length: int = 32) -> bytes:
    """Of RFC 5869."""
    made, block = b"", b""
    while len(made) < length:
        block = mac(key, block + info + bytes([len(made) // 32 + 1]))
        made += block
    return made[:length]


def hkdf(salt: bytes, ikm: bytes, info: bytes, length: int = 32) -> bytes:
    return expand(mac(salt, ikm), info, length)


def number(x) -> str:
    """A number as ECMAScript writes it."""
    if isinstance(x, int):
        need(abs(x) <= 2**53 - 1, "a whole number that JSON may round")
        return str(x)
    need(math.isfinite(x), "a number that is not finite")
    if x == 0:
        return "0"
    sign, digits, exponent = "-" * (x < 0), *scientific(abs(x))
    n, k = exponent + 1, len(digits)
    if k <= n <= 21:
        return sign + digits + "0" * (n - k)
    if 0 < n <= 21:
        return sign + digits[:n] + "." + digits[n:]
    if -6 < n <= 0:
        return sign + "0." + "0" * -n + digits
    mantissa = digits[0] + ("." + digits[1:] if k > 1 else "")
    return f"{sign}{mantissa}e{'+' if n > 0 else '-'}{abs(n - 1)}"


def scientific(x: float) -> tuple[str, int]:
    """The shortest digits, without zeros at either end, and the exponent of the first."""
    mantissa, _, exponent = repr(x).partition("e")
    whole, _, rest = mantissa.partition(".")
    power = int(exponent or 0) + len(whole) - 1
    digits = whole + rest
    stripped = digits.lstrip("0")
    power -= len(digits) - len(stripped)
    return stripped.rstrip("0"), power


def canonical(x) -> str:
    """RFC 8785."""
    if x is None or isinstance(x, bool):
        return {None: "null", True: "true", False: "false"}[x]
    if isinstance(x, int | float):
        return number(x)
    if isinstance(x, str):
        return json.dumps(x, ensure_ascii=False)
    if isinstance(x, list | tuple):
        return "[" + ",".join(map(canonical, x)) + "]"
    names = sorted(x, key=lambda name: name.encode("utf-16-be"))
    return "{" + ",".join(canonical(name) + ":" + canonical(x[name]) for name in names) + "}"


def unhex(text, length: int) -> bytes:
    good = isinstance(text, str) and re.fullmatch(f"[0-9a-f]{{{2 * length}}}", text)
    need(good, "no hexadecimal of the right length")
    return bytes.fromhex(text)


SIZES = {"float32": "f", "float64": "d", "float16": "e", "uint32": "I", "uint64": "Q"}


def pack(dtype: str, words: list[int]) -> dict:
    data = struct.pack(f"<{len(words)}{SIZES[dtype]}", *words)
    return {"dtype": dtype, "shapes": {"y": [len(words)]}, "data": base64.b64encode(data).decode()}


def unpack(payload: dict, *dtypes: str) -> dict[str, tuple[list[int], list]]:
    """Shape and elements of each array."""
    need(isinstance(payload, dict) and set(payload) == {"dtype", "shapes", "data"}, "no payload")
    need(payload["dtype"] in dtypes, "another dtype")
    try:
        data = base64.b64decode(payload["data"], validate=True)
    except ValueError:
        raise Refused("no base64") from None
    shapes = payload["shapes"]
    lengths = {name: math.prod(shape) for name, shape in shapes.items()}
    letter = SIZES[payload["dtype"]]
    need(len(data) == sum(lengths.values()) * struct.calcsize("<" + letter), "a payload of another length")
    elements = list(struct.unpack(f"<{sum(lengths.values())}{letter}", data))
    need(all(math.isfinite(x) for x in elements), "an array that is not finite")
    arrays, start = {}, 0
    for name, length in lengths.items():
        arrays[name] = shapes[name], elements[start : start + length]
        start += length
    return arrays


# ---- keys and study


def public(s: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(s).public_key().public_bytes_raw()


def x25519(s: bytes, S: bytes) -> bytes:
    try:
        return X25519PrivateKey.from_private_bytes(s).exchange(X25519PublicKey.from_public_bytes(S))
    except ValueError:
        raise Refused("a point of small order") from None


def checked_key(S: bytes) -> bytes:
    need(len(S) == 32 and int.from_bytes(S, "little") < 2**255 - 19, "a key in another form")
    x25519(bytes(range(32)), S)
    return S


def groups(data: bytes) -> str:
    text = base64.b32encode(data).decode()
    return "-".join(text[i : i + 4] for i in range(0, len(text), 4))


def write_key(S: bytes) -> str:
    return groups(S + H("key", S)[:3])


def read_key(text: str) -> bytes:
    try:
        data = base64.b32decode(re.sub(r"[\s-]", "", text).upper())
    except ValueError:
        raise Refused("no key") from None
    need(len(data) == 35 and data[32:] == H("key", data[:32])[:3], "a mistyped key")
    return checked_key(data[:32])


def study_blocks(study: dict) -> list[list[tuple[bytes, str]]]:
    return sorted(sorted((read_key(h["key"]), h["name"]) for h in block) for block in study["blocks"])


def study_digest(study: dict) -> bytes:
    blocks = [H("block", *(p for S, name in block for p in (name, S))) for block in study_blocks(study)]
    head = [study[name] for name in ("name", "version", "colluders", "hospitals_a_person")]
    return H("study", *head, study["schema"] or "", study["hospital_totals"], *blocks)


def study_code(study: dict) -> str:
    return groups(study_digest(study)[:30])


# ---- key agreement


def roster_digest(study: bytes, job: str, roster: list[dict]) -> bytes:
    parts = []
    for entry in sorted(roster, key=lambda entry: entry["S"]):
        parts += [*(bytes.fromhex(entry[name]) for name in "SED"), entry["version"]]
    return H("roster", study, job, *parts)


def pair_key(study: bytes, job: str, s: bytes, e: bytes, S: bytes, E: bytes) -> bytes:
    """K of the node with private s and e, and another one with S and E."""
    mine = public(s), public(e)
    dh = x25519(s, S) + x25519(e, E)
    if mine[0] < S:
        dh += x25519(e, S) + x25519(s, E)
        info = enc("pair", job, *mine, S, E)
    else:
        dh += x25519(s, E) + x25519(e, S)
        info = enc("pair", job, S, E, *mine)
    return hkdf(study, dh, info)


def tag(K: bytes, R: bytes, sender: bytes, receiver: bytes) -> bytes:
    return mac(expand(K, enc("confirm", R)), enc("tag", sender, receiver, R))


# ---- transcript


def unfold(ids) -> list[int]:
    return [i for x in ids for i in (range(x[0], x[1] + 1) if isinstance(x, list) else [x])]


def fold(ids) -> list:
    folded, run = [], []
    for i in [*sorted(unfold(ids)), None]:
        if run and (i is None or i != run[-1] + 1):
            folded += [[run[0], run[-1]]] if len(run) >= 100 else run
            run = []
        run.append(i)
    return folded


def step_digest(step) -> str:
    return hashlib.sha256(json.dumps(step, sort_keys=True).encode()).hexdigest()


def normal_job(job: dict, kept_steps: dict) -> dict:
    """The job in the form that T has."""
    job = dict(job)
    for name in ("participants", "evaluators"):
        if job.get(name):
            job[name] = fold(job[name])
    data = dict(job["data"])
    for name in OPTIONAL:
        if name in data and (data[name] is None or data[name] is False or data[name] in ("", [], {})):
            del data[name]
    steps = []
    for step in data.get("preprocess") or []:
        if isinstance(step, dict) and set(step) == {"step", "kept"}:
            need(step["kept"] in kept_steps, "a step that was not kept")
            step = kept_steps[step["kept"]]
        steps.append(step)
    if data.get("preprocess"):
        data["preprocess"] = steps
    return job | {"data": data}


def about(job: dict) -> str:
    return canonical([[job.get(name) for name in ABOUT_JOB], [job["data"].get(name) for name in ABOUT_DATA]])


def array_digest(name: str, dtype: str, shape: list[int], elements: list) -> bytes:
    kind, letter = ("f8", "d") if dtype == "float64" else ("f4", "f")
    data = struct.pack(f"<{len(elements)}{letter}", *elements)
    return H("array", name, kind, len(shape), *shape, hashlib.sha256(data).digest())


def arguments(kwargs: dict, job: dict, database) -> dict:
    others = {name: x for name, x in kwargs.items() if name not in ("job", "round", "sums", "arrays")}
    return {"evaluate": None, "bands": 0} | others | {"job": job, "database": database}


def transcript(R: bytes, seq, round_, method, function, layout: list, arguments: dict, digests: list[bytes]) -> bytes:
    return H("round", R, seq, round_, method, function, canonical(layout), canonical(arguments), *digests)


# ---- masks


def keystream(key: bytes, length: int) -> bytes:
    return Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(bytes(length))


def mask(K: bytes, width: int, T: bytes, count: int) -> list[int]:
    data = keystream(expand(K, enc(f"mask{width}", T)), count * width // 8)
    return list(struct.unpack(f"<{count}{'I' if width == 32 else 'Q'}", data))


def masked(q: list[int], width: int, S: bytes, K: dict[bytes, bytes], T_kept: bytes) -> list[int]:
    """The words q of the node S, whose pair keys are K by the other's S."""
    y = list(q)
    for other, key in K.items():
        sign = 1 if other > S else -1
        y = [(x + sign * m) % 2**width for x, m in zip(y, mask(key, width, T_kept, len(y)), strict=True)]
    return y


def factors(T: bytes, count: int) -> list[int]:
    data = keystream(expand(T, enc("mask32", enc("factors"))), 2 * count)
    return [2 * a + 1 for a in struct.unpack(f"<{count}h", data)]


def blur(noise: bytes, T: bytes, count: int) -> list[int]:
    return [(m >> 28) - 2**35 for m in mask(noise, 64, H("blur", T), count)]


def dither(noise: bytes, T: bytes, key: str, k: int) -> list[float]:
    """Gaussian numbers for the k values of a key. The last digits depend on the machine's logarithm and cosine."""
    h = (k + 1) // 2
    words = [m >> 11 for m in mask(expand(noise, enc("dither", T, key)), 64, T, 2 * h)]
    radius = [2 * math.sqrt(-2 * math.log((v + 1) * 2.0**-53)) for v in words[:h]]
    angle = [2 * math.pi * w * 2.0**-53 for w in words[h:]]
    polar = list(zip(radius, angle, strict=True))
    return ([r * math.cos(a) for r, a in polar] + [r * math.sin(a) for r, a in polar])[:k]


# ---- encoding


class Failed(Exception):
    """A node cannot compute its part."""


def layout_digest(items: list) -> str:
    return H("layout", canonical(items)).hex()


def size(item) -> int:
    return math.prod(item[2])


def chooses(item) -> bool:
    """Whether the request chooses its unit."""
    return item[3] == "mean" or isinstance(item[3], list)


def with_units(items: list, units: list) -> list[tuple]:
    """Each item with its width and its list of e; None for counts."""
    left = iter(units)
    full = []
    for item in items:
        if item[3] is None:
            full.append((item, 64, None))
        elif item[3] == "any":
            full.append((item, 64, ANY))
        elif chooses(item):
            width, e = next(left)
            full.append((item, width, [e]))
        else:
            full.append((item, 64, [item[3]]))
    return full


def whole(x, low, high) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and low <= x <= high


def check_units(items: list, units) -> None:
    chosen = [item for item in items if chooses(item)]
    need(isinstance(units, list) and len(units) == len(chosen), "another number of units")
    for item, unit in zip(chosen, units, strict=True):
        need(isinstance(unit, list) and len(unit) == 2, "no unit")
        width, e = unit
        need(whole(width, 32, 64) and whole(e, -1000, 1000), "no unit")
        if item[3] == "mean":
            good = (width == 64 and e in (10, 50, 90, 130, 170)) or (width == 32 and -40 <= e <= 40)
        else:
            good = width == 64 and item[3][0] <= e <= item[3][1]
        need(good, "a unit that is not accepted")


def check_exponents(e: int) -> list[int]:
    return [x for x in range(e + 32, e + 233, 40) if x <= 280]


def has_checks(item) -> bool:
    return item[3] == "mean" and item[2] != []


def key_of(item, e) -> str:
    return f"{item[1]} {item[0]}" + (f" 2^{e[0]}" if e and len(e) == 1 else "")


def share_bits(N: int) -> int:
    return (N - 1).bit_length()


def flat(x) -> list:
    return [z for y in x for z in flat(y)] if isinstance(x, list) else [x]


def finite(x: float) -> float:
    if not math.isfinite(x):
        raise Failed("a number is not finite")
    return x


def numbers(given) -> list:
    """What the function has returned: floats, or exact numbers as fractions."""
    if isinstance(given, dict):
        if any(isinstance(a, str) and not re.fullmatch("-?(0x)?[0-9a-f]+", a) for a in given["numbers"]):
            raise Failed("a number is not finite")
        unit = Fraction(2) ** given["exponent"]
        return [(int(a, 16) if isinstance(a, str) else a) * unit for a in flat(given["numbers"])]
    texts = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
    return [texts[x] if isinstance(x, str) else x for x in flat(given)]


def weighted(item, values: dict, n: int, N: int | None, K: int) -> list:
    """The item's values after its weight: whole numbers of counts, floats, or fractions of exact sums."""
    name, weight, _, unit, _ = item
    count = size(item)
    given = values.get(name)
    if unit is None:
        if name == "n":
            return [n]
        if given is None and name.startswith("has "):
            return [int(values.get(name[4:]) is not None)]
        if given is None and not item[2]:
            return [0]
        if given is None:
            raise Failed("a value is missing")
        xs = numbers(given)
        if not all(math.isfinite(x) for x in xs):
            raise Failed("a number is not finite")
        xs = [int(x) for x in xs]
    else:
        if given is None:
            if weight != "rows":
                raise Failed("a value is missing")
            return [0.0] * count
        xs = numbers(given)
        exact = isinstance(given, dict)
        if weight == "share":
            L = share_bits(N)
            xs = [x / 2**L if exact else float(x) * float(n) * 2.0**-L for x in xs]
        elif weight == "rows":
            xs = [x if exact else float(x) * float(n) for x in xs]
        elif weight == "equal":
            xs = [float(x) / K for x in xs]
        elif weight.startswith("equal/"):
            if values.get(weight[6:]) is None:
                raise Failed("a value is missing")
            by = numbers(values[weight[6:]])[0]
            xs = [float(x) / (K * float(by)) if by else 0.0 for x in xs]
        elif not exact:
            xs = [float(x) for x in xs]
    if len(xs) != count:
        raise Failed("another number of values")
    return xs


def rounded(x, width: int, e: int | None) -> int:
    """The word of a value; of a count, e is None."""
    if e is None:
        return x % 2**width
    power = (30 if width == 32 else 56) - e
    if isinstance(x, Fraction):
        return round(x * Fraction(2) ** power) % 2**width
    return round(finite(finite(x) * 2.0**power)) % 2**width


def words(full: list, values: dict, n: int, N, K: int, noise: bytes, T: bytes) -> tuple[list[int], list[int]]:
    """q of 32 and of 64 bits."""
    q = {32: [], 64: [1, 0]}
    checks = []
    blurred = []
    for item, width, e in full:
        xs = weighted(item, values, n, N, K)
        for i, each in enumerate(e or [None]):
            if i:
                blurred += range(len(q[64]), len(q[64]) + len(xs))
            q[width] += [rounded(x, width, each) for x in xs]
        if has_checks(item):
            C = sum(x * f for x, f in zip(xs, factors(T, len(xs)), strict=True))
            C = C if isinstance(C, Fraction) else float(C)
            checks += [rounded(C, 64, each) for each in check_exponents(e[0])]
    for where, by in zip(blurred, blur(noise, T, len(blurred)), strict=True):
        q[64][where] = (q[64][where] + by) % 2**64
    return q[32], q[64] + checks


def lengths(full: list) -> tuple[int, int]:
    q = {32: 0, 64: 2}
    for item, width, e in full:
        q[width] += size(item) * len(e or [0])
        if has_checks(item):
            q[64] += len(check_exponents(e[0]))
    return q[32], q[64]


# ---- node


class Job:
    def __init__(self, e, entry):
        self.e, self.entry = e, entry
        self.R = None  # until confirmed
        self.about = None
        self.tags = {}
        self.K = {}
        self.deleted = False
        self.begun = False  # whether the tags were right
        self.seq = 0
        self.answers = {}
        self.failed = False
        self.kept = {}
        self.steps = {}


class Node:
    def __init__(self, organization, secret, s, study, minimum, version, bands, database, limits):
        """One hospital's node.

        s is the private half of its identity key, or of the one in its place; study the content of its study.json, or
        None: the mode is masked; minimum that of organizations; limits the canonical JSON of what D has.
        """
        self.organization, self.secret, self.s = organization, secret, s
        self.study, self.minimum, self.version = study, minimum, version
        self.bands, self.database = bands, database
        self.limits = limits
        self.S = public(s)
        self.mode = "pinned" if study else "masked"
        self.block = []
        if study:
            blocks = [[S for S, _ in block] for block in study_blocks(study)]
            self.block = next((block for block in blocks if self.S in block), [])
            need(self.block, "this hospital is not in the study")
        self.jobs: dict[str, Job] = {}
        self.holdout = None
        self.steps = {}  # for the vectors: what is computed on the way, by the job's key and by T
        self.loaded = {}  # for the vectors: T' of the request that kept what was loaded, by T

    def job_key(self, message: dict) -> str:
        job = message["kwargs"]["job"]
        key = job.get("key")
        need(isinstance(key, str) and re.fullmatch("[0-9a-f]{32}", key), "no key of a job")
        need(job.get("aggregation") == self.mode, "another mode")
        return key

    def study_part(self, job: str) -> bytes:
        return study_digest(self.study) if self.study else H("masked", job)

    def hello(self, message: dict, e: bytes, table: bytes) -> dict:
        """The task describe, with the key that the node makes if the job is new, and the digest of its table."""
        key = self.job_key(message)
        need(not self.study or message["kwargs"]["job"].get("minimum_rows") is None, "a minimum of rows in a study")
        if key not in self.jobs:
            D = own(self.secret, "db", enc(key, table, self.limits))
            entry = {"S": self.S.hex(), "E": public(e).hex(), "D": D.hex(), "version": self.version}
            self.jobs[key] = Job(e, entry)
        job = self.jobs[key]
        need(not (job.deleted and job.answers), "this job's key is gone")
        answer = {"mode": self.mode, "entry": dict(job.entry), "block": [S.hex() for S in self.block]}
        answer["score_bands"] = self.bands
        if self.study:
            answer["hospital_totals"] = self.study["hospital_totals"]
        return answer

    def keep_steps(self, message: dict) -> dict:
        key = self.job_key(message)
        need(key in self.jobs, "an unknown job")
        for step in message["kwargs"]["job"]["data"]["preprocess"]:
            self.jobs[key].steps[step_digest(step)] = step
        return {"organization_id": self.organization, "round": message["kwargs"]["round"]}

    def confirm(self, message: dict) -> dict:
        """The task confirm."""
        key = self.job_key(message)
        need(key in self.jobs, "an unknown job")
        job = self.jobs[key]
        need(not job.deleted, "this job's key is gone")
        sent = normal_job(message["kwargs"]["job"], job.steps)
        roster = message["kwargs"]["roster"]
        self.check_roster(job, roster, sent)
        study = self.study_part(key)
        R = roster_digest(study, key, roster)
        if job.R is not None:
            need(job.R == R and job.about == about(sent), "another roster or job")
        else:
            tags, K = {}, {}
            for entry in roster:
                S, E = bytes.fromhex(entry["S"]), bytes.fromhex(entry["E"])
                if S != self.S:
                    K[S] = pair_key(study, key, self.s, job.e, S, E)
                    tags[S.hex()] = tag(K[S], R, self.S, S).hex()
            job.R, job.about, job.tags, job.K = R, about(sent), tags, K
            self.steps[key] = {"R": R, "K": {S.hex(): pair for S, pair in K.items()}}
        answer = {"tags": dict(job.tags)}
        if self.study:
            answer |= {"colluders": self.study["colluders"], "hospitals_a_person": self.study["hospitals_a_person"]}
        return answer

    def check_roster(self, job: Job, roster, sent: dict) -> None:
        need(isinstance(roster, list), "no roster")
        for entry in roster:
            need(isinstance(entry, dict) and set(entry) == {"S", "E", "D", "version"}, "no entry")
            for name in "SE":
                checked_key(unhex(entry[name], 32))
            unhex(entry["D"], 32)
            version = entry["version"]
            need(isinstance(version, str) and 1 <= len(version) <= 100 and version.isprintable(), "no version")
            need(version == self.version, "another version")
        need(job.entry in roster, "the node's own entry is not there")
        for name in "SE":
            need(len({entry[name] for entry in roster}) == len(roster), "a key twice")
        if self.study:
            need(sorted(entry["S"] for entry in roster) == [S.hex() for S in self.block], "another block")
        else:
            need(len(roster) == len(unfold(sent["participants"])), "another number of participants")
            need(len(roster) >= self.minimum, "too few hospitals")

    def answer(self, message: dict, items: list, values: dict | None, n: int | None) -> dict:
        """A request for a sum: of what the node's own code declares; values and rows n are what its function gave.

        values is None if the function has failed.
        """
        kwargs, function = message["kwargs"], message["method"]
        sums = kwargs.get("sums")
        # 1
        need(isinstance(sums, dict), "no sums")
        need(set(sums) == {"seq", "block", "rows", "layout", "units", "tags"}, "other members")
        need(whole(sums["seq"], 1, 2**31 - 1) and whole(sums["block"], 0, 2**53 - 1), "no number")
        need(whole(kwargs.get("round"), 0, 2**53 - 1), "no round")
        need(sums["rows"] is None or whole(sums["rows"], 1, 2**40 - 1), "no rows")
        need(isinstance(sums["tags"], dict), "no tags")
        need(sums["layout"] == layout_digest(items), "another layout")
        check_units(items, sums["units"])
        need(sums["rows"] is not None or all(item[1] != "share" for item in items), "rows are missing")
        need(kwargs.get("bands", 0) in (0, self.bands), "other bands")
        if self.study and self.study["hospital_totals"] == "hidden":
            need(all(item[4] in ("row", "nothing") for item in items), "totals are hidden")
        # 2
        key = self.job_key(message)
        job = self.jobs.get(key)
        need(job and job.R and not job.deleted, "no keys of this job")
        # 3
        if not job.begun:
            for S, K in job.K.items():
                right = tag(K, job.R, S, self.S).hex()
                row = sums["tags"].get(S.hex())
                sent = row.get(self.S.hex()) if isinstance(row, dict) else None
                if not (isinstance(sent, str) and hmac.compare_digest(sent.encode(), right.encode())):
                    job.deleted, job.K = True, {}
                    raise Refused(f"the tag of {S.hex()} is wrong")
            job.begun = True
        # 4
        normal = normal_job(kwargs["job"], job.steps)
        need(about(normal) == job.about, "the job is about something else")
        # 5
        holdout = normal["data"].get("holdout")
        if self.study:
            need(normal.get("minimum_rows") is None, "a minimum of rows in a study")
            if holdout:
                self.holdout = self.holdout or holdout
                need(holdout == self.holdout, "another share of held-out rows")
        # the transcript
        digests = []
        if "arrays" in kwargs:
            arrays = unpack(kwargs["arrays"], "float32", "float16", "float64")
            dtype = kwargs["arrays"]["dtype"]
            digests = [array_digest(name, dtype, *arrays[name]) for name in sorted(arrays)]
        layout = [sums[name] for name in ("block", "rows", "layout", "units")]
        told = arguments(kwargs, normal, self.database)
        T = transcript(job.R, sums["seq"], kwargs["round"], normal["method"], function, layout, told, digests)
        # the log
        if T in job.answers:
            return job.answers[T]
        need(sums["seq"] > job.seq, "not the next number")
        job.seq = sums["seq"]
        # what was kept
        known = kwargs.get("known") or {}
        kept = job.kept.get(known.get(f"block {sums['block']}"), b"")
        T_kept = H("kept", T, kept)
        if "known" in kwargs:
            job.kept[kwargs["round"]] = T_kept
        # words
        noise = own(self.secret, "noise", T)
        full = with_units(items, sums["units"])
        q32 = q64 = None
        if not job.failed and values is not None:
            with suppress(Failed):
                q32, q64 = words(full, values, n, sums["rows"], len(job.K) + 1, noise, T)
        if q32 is None:
            job.failed = True
            n32, n64 = lengths(full)
            q32, q64 = mask(noise, 32, T, n32), [1, *mask(noise, 64, T, n64)[1:]]
        self.steps[T.hex()] = {"arguments": canonical(told), "kept_T": T_kept, "secret": noise, "q32": q32, "q64": q64}
        self.loaded[T.hex()] = kept
        job.answers[T] = {
            "organization_id": self.organization,
            "round": kwargs["round"],
            "T": T.hex(),
            "y32": pack("uint32", masked(q32, 32, self.S, job.K, T_kept)),
            "y64": pack("uint64", masked(q64, 64, self.S, job.K, T_kept)),
        }
        return job.answers[T]


# ---- central


def signed(x: int, width: int) -> int:
    return x - 2**width if x >= 2 ** (width - 1) else x


def decoded(words: list[int], width: int, e: int | None) -> list:
    """The numbers of a sum's words; of counts, e is None."""
    whole = [signed(word, width) for word in words]
    return whole if e is None else [x * 2.0 ** (e - (30 if width == 32 else 56)) for x in whole]


def nearest(x: Fraction, to: Fraction) -> Fraction:
    return x - to * round(x / to)


def any_size(w: list[int]) -> float:
    """One number from its words of fifteen e."""
    first, w = ANY[0], [signed(word, 64) for word in w]
    V = w[-1] * 2 ** (ANY[-1] - first)
    for e, word in zip(ANY[-2::-1], w[-2::-1], strict=True):
        M, v = 2 ** (64 + e - first), word * 2 ** (e - first)
        V = v + M * ((V - v + M // 2) // M)
    return float(V * Fraction(2) ** (first - 56))


class Central:
    def __init__(self, hellos: dict[int, dict]):
        """Of the answers to hello by organization, all of whose blocks are whole."""
        blocks = {}
        for organization in sorted(hellos):
            blocks.setdefault(tuple(hellos[organization]["block"]), []).append(organization)
        self.blocks = {organizations[0]: organizations for organizations in blocks.values()}
        self.rosters = {
            block: sorted((hellos[i]["entry"] for i in organizations), key=lambda entry: entry["S"])
            for block, organizations in self.blocks.items()
        }
        self.S = {i: hello["entry"]["S"] for i, hello in hellos.items()}
        self.tags = {block: {} for block in self.blocks}
        self.seq = 0
        self.N = {}
        self.units = {}  # of (function, block, key without e): width and e of the next request
        self.last32 = {}

    def confirmed(self, organization: int, answer: dict) -> None:
        block = next(block for block, organizations in self.blocks.items() if organization in organizations)
        self.tags[block][self.S[organization]] = answer["tags"]

    def request(self, function: str, block: int, items: list, e: int | None = None) -> dict:
        """The sums of the next request to a block; e is of items whose unit is [first, last]."""
        self.seq += 1
        units = []
        for item in items:
            if item[3] == "mean":
                units.append(list(self.units.get((function, block, item[1], item[0]), (64, 10))))
            elif chooses(item):
                units.append([64, e])
        return {
            "seq": self.seq,
            "block": block,
            "rows": self.N.get(block),
            "layout": layout_digest(items),
            "units": units,
            "tags": {} if block in self.N else self.tags[block],
        }

    def opened(self, function: str, block: int, items: list, sums: dict, answers: list[dict]) -> dict:
        """What central reads, before an array that was sent is added to a mean, and which means have wrapped."""
        K = len(self.blocks[block])
        need(len(answers) == K and len({answer["T"] for answer in answers}) == 1, "the T of a block differ")
        T = bytes.fromhex(answers[0]["T"])
        full = with_units(items, sums["units"])
        added = {}
        for width, length in zip((32, 64), lengths(full), strict=True):
            each = [unpack(answer[f"y{width}"], f"uint{width}")["y"][1] for answer in answers]
            need(all(len(y) == length for y in each), "another number of words")
            added[width] = [sum(column) % 2**width for column in zip(*each, strict=True)]
        need(added[64][0] == K, "the masks have not cancelled")
        if added[64][1]:
            return {"nodes": K, "failed": True}
        queue = {32: iter(added[32]), 64: iter(added[64][2:])}
        result, raw = {}, {}
        for item, width, e in full:
            count = size(item)
            w = [[next(queue[width]) for _ in range(count)] for _ in (e or [0])]
            key = key_of(item, e)
            if e is None:
                result[key] = decoded(w[0], width, None)
            elif len(e) > 1:
                result[key] = [any_size(list(column)) for column in zip(*w, strict=True)]
            else:
                result[key] = raw[key] = decoded(w[0], width, e[0])
                if item[1] == "share":
                    L, N = share_bits(sums["rows"]), sums["rows"]
                    result[key] = [x * 2.0**L / N for x in raw[key]]
        wrapped = []
        for item, _, e in full:
            if has_checks(item):
                key = key_of(item, e)
                X = sum(Fraction(x) * f for x, f in zip(raw[key], factors(T, size(item)), strict=True))
                for each in check_exponents(e[0]):
                    C = Fraction(decoded([next(queue[64])], 64, each)[0])
                    off = abs(nearest(X - C, Fraction(2) ** (each + 8)))
                    if off > Fraction(2) ** max(e[0] + 1, each - 47) and key not in wrapped:
                        wrapped.append(key)
        N = result["one n"][0]
        need(self.N.setdefault(block, N) == N, "another number of rows")
        for item, width, e in full:
            if not has_checks(item):
                continue  # a single number keeps 64 bits and e = 10
            name, key = (function, block, item[1], item[0]), key_of(item, e)
            if width == 32:
                self.last32[name] = e[0]
            if key in wrapped:
                self.units[name] = (64, 10 if width == 32 else e[0] + 40)
            elif wrapped:
                self.units[name] = (width, e[0])
            else:
                m = max(map(abs, result[key]), default=0)
                f, power = math.frexp(m)
                least = -40 if m == 0 else power - (f == 0.5) + 3
                self.units[name] = (32, min(40, max(-40, least, self.last32.get(name, -40) - 1)))
        return {"nodes": K, "failed": False, "sums": result, "wrapped": wrapped}
