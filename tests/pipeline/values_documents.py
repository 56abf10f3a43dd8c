"""JSON texts of every sort, made from a random source: most fit a type, some nearly do, some are not JSON at all."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta, timezone
from random import Random
from typing import Any

import pyarrow as pa


def words(text: str) -> list[str]:
    return text.split()


NUMBERS = words("""0 -0 0.0 -0.0e-0 1e400 -1e-400 1E5 0.1 1e+2 123456.7890 3.5e38 3.4028235e38 1e00003 1.0 1e5 10e-1
9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809 2147483647 2147483648 -2147483648
127 128 -128 -129 9007199254740993 12345678901234567890123456789012345678 123456789012345678901234567890123456789
0.1111111111111111111111111111111111111111 111111111111111111111111111111e-25 00 01 1. .5 - +1 -01 1e 1e+ 0x10 1_0
4.35 0.000001 1.7976931348623157e308 1.7976931348623159e308 5e-324 2e-324 9223372036854775800 922337203685477580.7
""")
TEXTS = words(r"""
"" "a" "größe" "\ud83d\ude00" "\ud800" "\udc00x" "\ud83d\u0041" "\u00e9\/\b\f\n\r\t\"\\" "\u0000" "\x" "\u12g4" "😀" "
"open "\ud83d "\ " "\u00 "\u0041B\u0043" "YQ" "YQ=" "YQ==" "YR==" "YWI=" "Y=Q=" "YQ==YQ==" "QUJD" "\u0059Q=="
"YQ=\u003d" "1" "1.5" "-0.50" "+1" "1." ".5" "." "-" "1e3" "1e-3" "1e00001" "1E+1" "1.50e1" "0e9999" "00012.500" "٣"
"1.2.3" "1e1.5" "e5" "2024-02-29" "2023-02-29" "1900-02-29" "2000-02-29" "2024-13-01" "2024-00-10" "2024-04-31"
"0000-01-01" "0001-01-01" "9999-12-31" "0001-01-01T00:00+00:01" "9999-12-31T23:59:59.9999999-01" "2024-01-01T24:00"
"2024-01-01T23:60" "2024-01-01T23:59:60" "2024-01-01T1:00" "2024-01-01T10:00:00.1234567890" "2024-01-01T10:00:00."
"2024-01-01T10:00Z" "2024-01-01t10:00z" "2024-01-01T10:00+02" "2024-01-01T10:00+02:" "2024-01-01T10:00+0230"
"2024-01-01T10:00+24:00" "2024-01-01T10:00ZZ" "2024-01-01Z" "2024-01-01T" "20240101" "2024-01-01T10:00:00.5"
"\u0032024-01-01" "2024-1-1" "24-01-01" "2024/01/01" "12:00" "1704103200" true
""")
OTHERS = ["", " null\t", *words('true false null nul nulll True tru falsy NaN -Infinity [ ] { } {"a"}')]
ODD_NAMES = ["new", "other", "I", "i\u0000", "", "\n", "_OFFSET", "Örtchen", "\ud800"]
WHOLE: list[bytes | None] = [
    text.encode()
    for text in words(r"""
null [] {} {"t":1} {"t":1}{"t":2} {"t":1},{"t":1} {"t":1,} {,"t":1} {"t"1} {"t":1"i":1} {t:1} {'t':1} {"t":1}//
{"t":1,"l":[1-2]} {"t":1,"l":[1,]} {"t":1,"l":[,]} {"t":1,"l":[1]]} {"t":1,"m":{"a":1"b":2}} {"t":1,"new":[1-2]}
{"t":1,"new":{"a":1"b":2}} {"t":1,"new":{"a":1,}} {"t":1,"new":[[],{},[{}]]} {"t":1,"l":[1}} {"t":1,"new":[1}}
""")
]
WHOLE += [
    None,
    b"",
    b" ",
    b"\xff",
    b'\xef\xbb\xbf{"t":1}',
    b'{"t":1}\x00',
    b'{"t":1} null {"t":1}',
    b'{"t":1,"l":[1 2]}',
]
WHOLE += [b'{"t":1,"new":' + b"[" * depth + b"]" * depth + b"}" for depth in (255, 256)] + [b'{"t":1,"x' + b"[" * 300]


def any_document(random: Random, depth: int = 0) -> str:
    sort = random.random()
    if depth > 3 or sort < 0.25:
        return random.choice(NUMBERS)
    if sort < 0.5:
        return random.choice(TEXTS)
    if sort < 0.65:
        return random.choice(OTHERS)
    parts = [any_document(random, depth + 1) for _ in range(random.randrange(4))]
    if sort < 0.8:
        return f"[{','.join(parts)}]"
    return joined(random, [(random.choice([*ODD_NAMES, "i", "a", "k"]), part) for part in parts])


def joined(random: Random, pairs: list[tuple[str, str]]) -> str:
    gap = random.choice(["", "", "", " ", "\n", "\r\n\t"])
    return "{" + f"{gap},{gap}".join(f"{spelled(random, name)}{gap}:{gap}{item}" for name, item in pairs) + gap + "}"


def spelled(random: Random, name: str) -> str:
    way = random.random()
    if way < 0.1:
        return '"' + "".join(f"\\u{ord(letter):04X}" for letter in name) + '"'
    return json.dumps(name, ensure_ascii=way < 0.5 or "\ud800" in name)


def fitting(random: Random, kind: Any) -> str:
    """A text that fits the type, mostly."""
    sort = random.random()
    if sort < 0.06:
        return any_document(random)
    if sort < 0.12:
        return "null"
    if pa.types.is_struct(kind):
        return struct(random, list(kind))
    if pa.types.is_map(kind):
        names = random.sample(["a", "b", '"', "ö", "a\nb"], random.randrange(4)) * (2 if sort > 0.97 else 1)
        names += [f"key {number}" for number in range(random.choice((0, 0, 0, 20)))]
        return joined(random, [(name, fitting(random, kind.item_type)) for name in names])
    if pa.types.is_list(kind):
        return f"[{' , '.join(fitting(random, kind.value_type) for _ in range(random.randrange(4)))}]"
    return scalar(random, kind)


def struct(random: Random, fields: list[Any]) -> str:
    chosen = random.sample(fields, random.randrange(len(fields) + 1))
    chosen += [field for field in fields if not field.nullable and field not in chosen and random.random() < 0.95]
    pairs = [(field.name, fitting(random, field.type)) for field in chosen]
    if random.random() < 0.1:
        pairs.insert(random.randrange(len(pairs) + 1), (random.choice(ODD_NAMES), any_document(random)))
    if pairs and random.random() < 0.02:
        pairs.append(random.choice(pairs))
    return joined(random, pairs)


def scalar(random: Random, kind: Any) -> str:
    if pa.types.is_boolean(kind):
        return random.choice(["true", "false"])
    if pa.types.is_integer(kind):
        return str(random.randrange(-128, 128) if random.random() < 0.8 else random.getrandbits(kind.bit_width - 1))
    if pa.types.is_floating(kind):
        return random.choice(
            [repr(random.random()), repr(random.uniform(-1e30, 1e30)), str(random.randrange(-999, 999))]
        )
    if pa.types.is_decimal(kind):
        text = f"{random.randrange(-999, 1000)}" + (f".{random.randrange(10)}" if kind.scale else "")
        return random.choice([text, f'"{text}"'])
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return json.dumps(moment(random, kind))
    if pa.types.is_binary(kind):
        return json.dumps(base64.b64encode(random.randbytes(random.randrange(6))).decode())
    return random.choice([random.choice(TEXTS), json.dumps("plain text"), json.dumps("ä\n" * random.randrange(9))])


def moment(random: Random, kind: Any) -> str:
    at = datetime(1, 1, 1) + timedelta(microseconds=random.randrange(9998 * 365 * 86_400_000_000))
    if pa.types.is_date(kind):
        return at.date().isoformat()
    if kind.tz is None:
        return at.isoformat(random.choice("T "), random.choice(["minutes", "seconds", "milliseconds", "auto"]))
    zone = random.choice([None, UTC, timezone(timedelta(minutes=random.randrange(-1439, 1440)))])
    return at.replace(tzinfo=zone).isoformat().replace("+00:00", random.choice(["Z", "+00:00", "+00"]))


def any_value(random: Random, fields: list[Any]) -> bytes | None:
    sort = random.random()
    if sort < 0.08:
        return random.choice(WHOLE)
    text = struct(random, fields).encode(errors="surrogatepass")
    if sort < 0.12:
        return text[: random.randrange(len(text))]
    if sort < 0.16:
        at = random.randrange(len(text))
        return text[:at] + bytes([random.randrange(256)]) + text[at + random.randrange(2) :]
    if sort < 0.18:
        return text + random.choice([b"\n", b" ", b""]) + struct(random, fields).encode(errors="surrogatepass")
    if sort < 0.20:
        return any_document(random).encode(errors="surrogatepass")
    return random.choice([b"", b"", b" \n"]) + text + random.choice([b"", b"", b"\r\n"])
