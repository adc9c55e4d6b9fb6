"""Properties of identity over the wire: however a client writes one content down, it is one operation; whatever it
changes, it is another."""

import itertools
import json
import random
import urllib.parse

import pytest
from harness import Answer, Gateway, Upstream, config_for
from hypothesis import given, settings
from hypothesis import strategies as st

SETTINGS = settings(max_examples=150, derandomize=True, deadline=None, database=None)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """One gateway for all examples; a new key for each."""
    upstream = Upstream(lambda r: Answer(201, [], r.get("Idempotency-Key").encode()))
    gateway = Gateway(tmp_path_factory.mktemp("identity"), config_for(upstream)).start()
    yield gateway, upstream, itertools.count()
    gateway.stop()
    upstream.close()


def words(place, media, requests):
    """Send (query, body) one after the other under a new key: what became of each, and how many reached the upstream."""
    gateway, upstream, counter = place
    key = f"k-{next(counter)}"
    headers = [("Content-Type", media), ("Idempotency-Key", key)]
    before = len(upstream.requests)
    with gateway.connect() as connection:
        answers = [connection.request("POST", "/orders" + query, headers, body) for query, body in requests]
    assert all(a.problem or a.body == key.encode() for a in answers)
    return [a.problem or a.marker for a in answers], len(upstream.requests) - before


# --- JSON. A number is (digits, exponent): what it is worth, not how it is written. --------------------------------------


class Number(tuple):
    @property
    def worth(self):
        digits, exponent = self
        while digits != 0 and digits % 10 == 0:
            digits, exponent = digits // 10, exponent + 1
        return digits, exponent if digits else 0


def write_number(number, r):
    digits, exponent = number
    sign, text = ("-" if digits < 0 else ""), str(abs(digits))
    zeros = r.randrange(4)
    text, exponent = text + "0" * zeros, exponent - zeros
    point = r.randrange(len(text) + 1)  # where to put it; the exponent makes up for it
    whole, fraction = text[:point], text[point:]
    if r.random() < 0.5 and 0 <= -exponent <= 30:  # without an exponent
        text = text.rjust(-exponent + 1, "0")
        whole, fraction, point, exponent = text[: len(text) + exponent], text[len(text) + exponent :], 0, None
    whole = whole.lstrip("0") or "0"
    fraction = "." + fraction if fraction else ""
    if digits == 0 and r.random() < 0.5:
        sign = "-"
    if exponent is None:
        return sign + whole + fraction
    exponent += len(fraction[1:])
    return f"{sign}{whole}{fraction}{r.choice('eE')}{'+' if exponent >= 0 and r.random() < 0.5 else ''}{exponent}"


def write_string(text, r):
    out = []
    for letter in text:
        pair = letter.encode("utf-16-be").hex()
        escaped = "".join("\\u" + r.choice((pair[i : i + 4], pair[i : i + 4].upper())) for i in range(0, len(pair), 4))
        short = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}
        plain = [short[letter]] if letter in short else []
        plain += [letter] if letter >= " " and letter not in '"\\' else []
        out.append(r.choice([escaped, *plain]))
    return '"' + "".join(out) + '"'


def write(value, r):
    """The value as JSON text in one of its many spellings."""

    def gap():
        return "".join(r.choice(" \t\r\n") for _ in range(r.randrange(3)))

    if isinstance(value, Number):
        text = write_number(value, r)
    elif isinstance(value, str):
        text = write_string(value, r)
    elif isinstance(value, dict):
        members = list(value.items())
        r.shuffle(members)
        text = "{" + ",".join(gap() + write_string(n, r) + gap() + ":" + write(v, r) for n, v in members) + gap() + "}"
    elif isinstance(value, list):
        text = "[" + ",".join(write(v, r) for v in value) + gap() + "]"
    else:
        text = json.dumps(value)
    return gap() + text + gap()


def worth(value):
    """Equal for equal documents only."""
    if isinstance(value, Number):
        return "number", value.worth
    if isinstance(value, dict):
        return "object", tuple(sorted((n, worth(v)) for n, v in value.items()))
    if isinstance(value, list):
        return "array", tuple(worth(v) for v in value)
    return type(value).__name__, repr(value)


def change(value, r):
    """The value with one thing changed somewhere in it."""
    if isinstance(value, dict) and value and r.random() < 0.7:
        name = r.choice(sorted(value))
        return {**value, name: change(value[name], r)}
    if isinstance(value, list) and value and r.random() < 0.7:
        i = r.randrange(len(value))
        return value[:i] + [change(value[i], r)] + value[i + 1 :]
    if isinstance(value, Number):
        digits, exponent = value
        return r.choice([Number((digits + 1, exponent)), Number((-digits if digits else 1, exponent)), f"{digits}e{exponent}"])
    if isinstance(value, str):
        return r.choice([value + " ", value + "\u0301", value[:-1] if value else "x", None])
    if isinstance(value, dict):
        return r.choice([{**value, "added": None}, [value], dict(list(value.items())[1:]) if value else None])
    if isinstance(value, list):
        return r.choice([[*value, None], value[::-1] if worth(value) != worth(value[::-1]) else [value], value[1:] if value else {}])
    return {None: False, False: True, True: None}[value]


texts = st.text(st.characters(blacklist_categories=["Cs"]), max_size=8)
numbers = st.tuples(
    st.integers(-10**20, 10**20) | st.sampled_from([0, 1, 2**53, 2**53 + 1, -(2**63), 10**17]),
    st.sampled_from([0, 0, 0, -1, -2, 1, 5, -20, 20, 300, -330]),
).map(Number)
documents = st.recursive(
    numbers | texts | st.sampled_from([None, True, False]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@SETTINGS
@given(document=documents, seed=st.integers(0, 2**32))
def test_one_document_in_many_spellings_is_one_operation(place, document, seed):
    r = random.Random(seed)
    requests = [("", write(document, r).encode()) for _ in range(4)]
    assert words(place, "application/json", requests) == (["executed"] + ["replayed"] * 3, 1)


@SETTINGS
@given(document=documents, seed=st.integers(0, 2**32))
def test_a_document_with_anything_changed_is_another(place, document, seed):
    r = random.Random(seed)
    changed = change(document, r)
    assert worth(changed) != worth(document)
    requests = [("", write(d, r).encode()) for d in (document, changed, document)]
    assert words(place, "application/json", requests) == (["executed", "key-reused", "replayed"], 1)


# --- Pairs: queries and forms. -------------------------------------------------------------------------------------------


def write_pairs(pairs, r):
    def escape(text):
        out = []
        for byte in text.encode():
            plain = chr(byte) if chr(byte).isalnum() and byte < 0x80 else "+" if byte == 0x20 else None
            code = f"%{byte:02x}"
            out.append(r.choice([code, code.upper(), *([plain] if plain else [])]))
        return "".join(out)

    names = sorted({n for n, _ in pairs})
    r.shuffle(names)  # values of one name keep their order
    return "&".join(escape(n) + "=" + escape(v) for name in names for n, v in pairs if n == name)


pair_lists = st.lists(st.tuples(texts.filter(len), texts), min_size=1, max_size=5)


@SETTINGS
@given(pairs=pair_lists, seed=st.integers(0, 2**32))
def test_pairs_in_many_spellings_are_one_operation(place, pairs, seed):
    r = random.Random(seed)
    requests = [("?" + write_pairs(pairs, r), write_pairs(pairs, r).encode()) for _ in range(3)]
    assert words(place, "application/x-www-form-urlencoded", requests) == (["executed", "replayed", "replayed"], 1)


@SETTINGS
@given(pairs=pair_lists, seed=st.integers(0, 2**32), where=st.sampled_from(["query", "body"]))
def test_pairs_with_anything_changed_are_another_operation(place, pairs, seed, where):
    r = random.Random(seed)
    i = r.randrange(len(pairs))
    name, value = pairs[i]
    changed = r.choice([pairs[:i] + pairs[i + 1 :], pairs[:i] + [(name, value + " ")] + pairs[i + 1 :],
                        pairs[:i] + [(name + "=", value)] + pairs[i + 1 :], [*pairs, ("", "")], [*pairs, pairs[i]]])
    sent = [(p, pairs) if where == "query" else (pairs, p) for p in (pairs, changed, pairs)]
    requests = [("?" + write_pairs(query, r), write_pairs(body, r).encode()) for query, body in sent]
    assert words(place, "application/x-www-form-urlencoded", requests) == (["executed", "key-reused", "replayed"], 1)
    read = urllib.parse.parse_qsl(write_pairs(pairs, r), keep_blank_values=True)
    assert sorted(read) == sorted(pairs)  # the writer itself is right
