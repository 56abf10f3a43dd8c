"""The syntax of RE2: what an expression says, as a tree; what RE2 does not know is a SyntaxProblem.

    any         .  [abc]  [^a-z]  [[:alpha:]]  \\d \\D \\s \\S \\w \\W  \\pN \\p{Greek} \\P{..}
    one after another, or   xy  x|y
    repeated    x*  x+  x?  x{2}  x{2,}  x{2,5}, each with a lazy form behind ?
    grouped     (x)  (?:x)  (?P<name>x)  (?<name>x)  (?i)  (?i-s:x), flags i m s U
    where       ^  $  \\A  \\z  \\b  \\B
    literal     \\Q..\\E  \\a \\f \\n \\r \\t \\v  \\x7F \\x{10FFFF}  \\123, and any punctuation behind \\
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

_MAX_REPEAT = 1000
_MAX_DEPTH = 200


class SyntaxProblem(Exception):
    pass


class AnyOf(NamedTuple):
    """A single character: in one of the ranges or passing one of the tests, or the opposite."""

    ranges: tuple[tuple[int, int], ...] = ()
    tests: tuple[Callable[[str], bool], ...] = ()
    negated: bool = False
    fold_case: bool = False

    def has(self, char: str) -> bool:
        found = self._lists(char) or (self.fold_case and self._lists(char.swapcase()))
        return found != self.negated

    def _lists(self, char: str) -> bool:
        code = ord(char[0])
        return any(low <= code <= high for low, high in self.ranges) or any(test(char) for test in self.tests)


class At(NamedTuple):
    where: str


class Sequence(NamedTuple):
    parts: tuple[Node, ...]


class Alternatives(NamedTuple):
    options: tuple[Node, ...]


class Repeat(NamedTuple):
    body: Node
    least: int
    # None: without bound.
    most: int | None


Node: TypeAlias = AnyOf | At | Sequence | Alternatives | Repeat


def is_word(char: str) -> bool:
    return char == "_" or ("0" <= char <= "9") or ("a" <= char <= "z") or ("A" <= char <= "Z")


_DIGIT = ((48, 57),)
_SPACE = ((9, 10), (12, 13), (32, 32))
_WORD = ((48, 57), (65, 90), (95, 95), (97, 122))
_PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_NAMED = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CONTROL = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_POSITIONS = {"A": "start", "z": "end", "b": "boundary", "B": "no boundary"}
# One letter is a family of general categories, a second one picks among them.
_CATEGORIES = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
# The script of a letter is the first word of its name in the Unicode database.
_SCRIPTS = {"Latin", "Greek", "Cyrillic", "Arabic", "Hebrew", "Armenian", "Georgian", "Thai", "Hiragana", "Katakana"}
_ANY = AnyOf(((0, 0x10FFFF),))


class _Flags(NamedTuple):
    fold_case: bool = False
    dot_all: bool = False


def parse(expression: str) -> Node:
    parser = _Parser(expression)
    tree = parser.alternatives(_Flags(), 0)
    if parser.at < len(parser.text):
        raise SyntaxProblem("unexpected )")
    return tree


class _Parser:
    __slots__ = ("at", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def _peek(self, size: int = 1) -> str:
        return self.text[self.at : self.at + size]

    def alternatives(self, flags: _Flags, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise SyntaxProblem("expression nests too deeply")
        options: list[Node] = []
        parts: list[Node] = []
        while self.at < len(self.text) and self._peek() != ")":
            if self._peek(2) == "\\Q":
                self._unquote()
                continue
            if self._peek() == "|":
                self.at += 1
                options.append(Sequence(tuple(parts)))
                parts = []
                continue
            if parts and self._at_repeat():
                # Behind flags, (?i)*, this is the item before them, as in RE2.
                parts[-1] = self._repeated(parts[-1])
                continue
            node, flags = self._item(flags, depth)
            if node is not None:
                parts.append(node)
        options.append(Sequence(tuple(parts)))
        return options[0] if len(options) == 1 else Alternatives(tuple(options))

    def _item(self, flags: _Flags, depth: int) -> tuple[Node | None, _Flags]:
        """One thing that can be repeated, or flags for what follows."""
        char = self._peek()
        if char == "(":
            return self._group(flags, depth)
        if self._at_repeat():
            raise SyntaxProblem(f"missing argument to repetition operator: {char}")
        if char == "[":
            return self._char_class(flags), flags
        if char == "\\":
            return self._escape(flags), flags
        self.at += 1
        if char == ".":
            return (_ANY if flags.dot_all else AnyOf(((10, 10),), negated=True)), flags
        if char in "^$":
            return At("start" if char == "^" else "end"), flags
        return _literal(char, flags), flags

    def _unquote(self) -> None:
        """Put escapes in the place of \\Q..\\E, so that what follows repeats the last character only."""
        begin = self.at + 2
        end = self.text.find("\\E", begin)
        quoted, rest = (self.text[begin:], "") if end < 0 else (self.text[begin:end], self.text[end + 2 :])
        self.text = "".join(f"\\x{{{ord(char):x}}}" for char in quoted) + rest
        self.at = 0

    # -- repeats -------------------------------------------------------------------------------------------------

    def _bounds(self) -> tuple[int, int | None, int] | None:
        """(least, most, position behind) of a {n,m} here; None where the brace is a plain character."""
        if self._peek() != "{":
            return None
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at + 1 : max(end, 0)].partition(",")
        if end < 0 or not _is_number(low) or not (high == "" or _is_number(high)):
            return None
        least = int(low)
        most = least if not comma else int(high) if high else None
        if max(least, most or 0) > _MAX_REPEAT or (most is not None and most < least):
            raise SyntaxProblem(f"invalid repeat count: {self.text[self.at : end + 1]}")
        return least, most, end + 1

    def _at_repeat(self) -> bool:
        char = self._peek()
        return (char != "" and char in "*+?") or self._bounds() is not None

    def _repeated(self, node: Node) -> Node:
        bounds = self._bounds()
        if bounds is not None:
            least, most, self.at = bounds
        else:
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[self._peek()]
            self.at += 1
        if self._peek() == "?":
            self.at += 1
        if self._at_repeat():
            raise SyntaxProblem("invalid nested repetition operator")
        return Repeat(node, least, most)

    # -- groups --------------------------------------------------------------------------------------------------

    def _group(self, flags: _Flags, depth: int) -> tuple[Node | None, _Flags]:
        self.at += 1
        inner = flags
        if self._peek() == "?":
            self.at += 1
            if self._peek(2) == "P<" or (self._peek() == "<" and self._peek(2) not in ("<=", "<!")):
                self._group_name()
            else:
                inner, scoped = self._flags(flags)
                if not scoped:
                    return None, inner
        body = self.alternatives(inner, depth + 1)
        if self._peek() != ")":
            raise SyntaxProblem("missing closing )")
        self.at += 1
        return body, flags

    def _group_name(self) -> None:
        begin = self.text.index("<", self.at) + 1
        end = self.text.find(">", begin)
        name = self.text[begin : max(end, begin)]
        if not name or not all(map(is_word, name)):
            raise SyntaxProblem("invalid named capture")
        self.at = end + 1

    def _flags(self, flags: _Flags) -> tuple[_Flags, bool]:
        """The flags, and whether they hold for a group only, (?i:x), or for all that follows, (?i)."""
        on, wanted = True, False
        while True:
            char = self._peek()
            self.at += 1
            if char == "i":
                flags = flags._replace(fold_case=on)
            elif char == "s":
                flags = flags._replace(dot_all=on)
            elif char == "-" and on:
                on, wanted = False, True
                continue
            elif char and char in ":)" and not wanted:
                return flags, char == ":"
            elif not char or char not in "mU":
                raise SyntaxProblem("invalid or unsupported Perl syntax")
            wanted = False

    # -- characters ----------------------------------------------------------------------------------------------

    def _escape(self, flags: _Flags) -> Node:
        self.at += 1
        char = self._peek()
        if char and char in _POSITIONS:
            self.at += 1
            return At(_POSITIONS[char])
        any_of = self._escaped_class()
        if any_of is not None:
            return any_of._replace(fold_case=flags.fold_case)
        return _literal(chr(self._escaped_code()), flags)

    def _escaped_class(self) -> AnyOf | None:
        """A class behind a backslash; None, and nothing read, where a single character stands there."""
        char = self._peek()
        if char.lower() in _PERL:
            self.at += 1
            return AnyOf(_PERL[char.lower()], negated=char.isupper())
        if char not in ("p", "P"):
            return None
        self.at += 1
        name = self._peek()
        if name == "{":
            end = self.text.find("}", self.at)
            name = self.text[self.at + 1 : max(end, 0)]
            self.at = end
        negated = (char == "P") != name.startswith("^")
        self.at += 1
        return AnyOf(tests=(_unicode_class(name.removeprefix("^")),), negated=negated)

    def _escaped_code(self) -> int:
        char = self._peek()
        self.at += 1
        if char in _CONTROL:
            return _CONTROL[char]
        if char == "x":
            return self._hex_code()
        if char == "0" or ("1" <= char <= "7" and "0" <= self._peek() <= "7"):
            digits = char
            while len(digits) < 3 and self._peek() and self._peek() in "01234567":
                digits += self._peek()
                self.at += 1
            return int(digits, 8)
        if char and ord(char) < 128 and not char.isalnum():
            return ord(char)
        raise SyntaxProblem(f"invalid escape sequence: \\{char}" if char else "trailing backslash at end of expression")

    def _hex_code(self) -> int:
        digits = self._peek(2)
        end = self.at + 2
        if digits.startswith("{"):
            end = self.text.find("}", self.at) + 1
            digits = self.text[self.at + 1 : max(end - 1, 0)]
        elif len(digits) < 2:
            digits = ""
        self.at = end
        if not digits or any(d not in "0123456789abcdefABCDEF" for d in digits) or int(digits, 16) > 0x10FFFF:
            raise SyntaxProblem("invalid escape sequence: \\x")
        return int(digits, 16)

    def _char_class(self, flags: _Flags) -> AnyOf:
        self.at += 1
        negated = self._peek() == "^"
        self.at += negated
        ranges: list[tuple[int, int]] = []
        tests: list[Callable[[str], bool]] = []
        first = True
        while first or self._peek() != "]":
            if self.at >= len(self.text):
                raise SyntaxProblem("missing closing ]")
            first = False
            listed = self._class_in_class()
            if listed is None:
                ranges.append(self._range())
            elif listed.negated or listed.tests:
                tests.append(listed.has)
            else:
                ranges.extend(listed.ranges)
        self.at += 1
        return AnyOf(tuple(ranges), tuple(tests), negated, flags.fold_case)

    def _class_in_class(self) -> AnyOf | None:
        if self._peek(2) == "[:":
            end = self.text.find(":]", self.at + 2)
            if end >= 0:
                name = self.text[self.at + 2 : end]
                if name.removeprefix("^") not in _NAMED:
                    raise SyntaxProblem(f"invalid character class range: [:{name}:]")
                self.at = end + 2
                return AnyOf(_NAMED[name.removeprefix("^")], negated=name.startswith("^"))
        if self._peek() == "\\":
            self.at += 1
            listed = self._escaped_class()
            if listed is None:
                self.at -= 1
            return listed
        return None

    def _range(self) -> tuple[int, int]:
        low = self._class_char()
        if self._peek() != "-" or self._peek(2) in ("-]", "-"):
            return low, low
        self.at += 1
        high = self._class_char()
        if high < low:
            raise SyntaxProblem(f"invalid character class range: {chr(low)}-{chr(high)}")
        return low, high

    def _class_char(self) -> int:
        if self.at >= len(self.text):
            raise SyntaxProblem("missing closing ]")
        self.at += 1
        if self.text[self.at - 1] == "\\":
            return self._escaped_code()
        return ord(self.text[self.at - 1])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _literal(char: str, flags: _Flags) -> AnyOf:
    return AnyOf(((ord(char), ord(char)),), fold_case=flags.fold_case)


def _unicode_class(name: str) -> Callable[[str], bool]:
    import unicodedata  # large, and hardly ever asked for

    if name[:1] in _CATEGORIES and (len(name) == 1 or (len(name) == 2 and name[1] in _CATEGORIES[name[0]])):
        return lambda char: unicodedata.category(char).startswith(name)
    if name in _SCRIPTS:
        return lambda char: unicodedata.name(char, "").startswith(name.upper() + " ")
    raise SyntaxProblem(f"invalid character class range: \\p{{{name}}}")
