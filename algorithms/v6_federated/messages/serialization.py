"""Messages as vantage6 sends them: their size and their digest, without a copy of the payloads in them."""

import functools
import hashlib
import json
from collections.abc import Iterable
from typing import Any

from v6_federated.messages.codec import PAYLOAD

HOLE = "\0data"  # stands for the data of a payload
SLICE = 2**16  # letters


def size(message: Any) -> int:
    """The size of a message as vantage6 sends it (``json.dumps``), without copying the payloads in it."""
    return sum(map(len, pieces(message)))


def pieces(message: Any) -> list[str]:
    """Write a message as JSON without copying the payloads in it."""
    text, found = _hollow(message)
    around = text.split(json.dumps(HOLE)[1:-1])
    if len(around) != len(found) + 1 or not all(map(_unescaped, found)):
        return [json.dumps(message)]  # another text looks like the hole, or a payload needs escapes
    return [text for pair in zip(around, [*found, ""], strict=True) for text in pair]


def _hollow(message: Any) -> tuple[str, list[str]]:
    """A message as JSON with a hole in place of each payload's data, and these data in their order."""
    found: list[str] = []

    def hollow(value: Any) -> Any:
        if isinstance(value, dict):
            if set(value) == PAYLOAD and isinstance(value["data"], str):
                found.append(value["data"])
                return {**value, "data": HOLE}
            return {k: hollow(v) for k, v in value.items()}
        if isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
            return [hollow(v) for v in value]
        return value

    return json.dumps(hollow(message)), found


def _unescaped(data: str) -> bool:
    """Whether JSON writes a payload's data as it is; control characters, which ``decode`` refuses, do not count."""
    return data.isascii() and '"' not in data and "\\" not in data


def digest(message: Any) -> bytes:
    """The SHA-256 digest of a message. A payload is digested on its own, and one that is sent to many nodes once."""
    text, found = _hollow(message)
    return hashlib.sha256(json.dumps([text, *map(_sha256, found)]).encode()).digest()


@functools.lru_cache(maxsize=2)
def _sha256(data: str) -> str:
    return str(sha256([data]).hexdigest())


def sha256(texts: Iterable[str]) -> Any:
    """Digest texts one after the other, in slices: a copy of a whole payload would cost more than its digest."""
    found = hashlib.sha256()
    for text in texts:
        for start in range(0, len(text), SLICE):
            found.update(text[start : start + SLICE].encode(errors="surrogatepass"))
    return found
