"""Regular expressions with RE2's meaning: checked against Python's engine where the two agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.deciding.turn import Refusal
from tidelog.group.regex import check, compiled, matching
from tidelog.wire.errors import ErrorCode

ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "-",
        r"\.",
        ".",
        "[ab]",
        "[^a]",
        "[a-c_]",
        r"\d",
        r"\w",
        r"\W",
        r"\s",
        r"[\d-]",
        "1",
        r"\x61",
        r"[\[]",
        "[]a]",
    ]
)
REPEATS = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?"])


def expressions():
    def bigger(inner):
        return st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map("|".join).map("(?:{})".format),
            inner.map("({})".format),
            st.tuples(inner, REPEATS).map(lambda parts: f"(?:{parts[0]}){parts[1]}"),
            inner.map("(?i:{})".format),
            inner.map("^{}$".format),
            inner.map(r"\b{}".format),
        )

    return st.recursive(ATOMS, bigger, max_leaves=8)


@settings(max_examples=400, deadline=None)
@given(expressions(), st.text(alphabet="abcAB1-_. ", max_size=8))
def test_a_match_is_what_pythons_engine_says(expression, text):
    # RE2's classes are ASCII; in Python $ also matches before a final newline, which topic names lack.
    assert compiled(expression).matches(text) == (re.fullmatch(expression, text, re.ASCII) is not None)


@pytest.mark.parametrize(
    ("expression", "yes", "no"),
    [
        ("orders", "orders", "orders2"),
        ("orders|payments", "payments", "orderspayments"),
        ("orders.*", "orders-eu", "my-orders"),
        ("(?i)ORDERS", "orders", "order"),
        ("(?i)o(?-i)R", "OR", "or"),
        ("(?P<x>a)b", "ab", "a"),
        ("(?<x>a)b", "ab", "a"),
        (r"\Qa.b*\E+", "a.b**", "axb*"),
        (r"\Aorders\z", "orders", "order"),
        (r"[[:alpha:]]+", "abc", "a1"),
        (r"[[:^alpha:]]+", "123", "a1"),
        (r"[^[:digit:]]", "a", "1"),
        (r"\pL+", "abc", "a1"),
        (r"\p{Lu}", "A", "a"),
        (r"\PL", "1", "a"),
        (r"\p{^L}", "1", "a"),
        (r"\p{Greek}", "α", "a"),
        (r"\x{61}", "a", "b"),
        (r"\141", "a", "b"),
        ("a{,2}", "a{,2}", "aa"),
        ("a{2", "a{2", "aa"),
        ("x{0}y", "y", "xy"),
        ("", "", "a"),
        ("()", "", "a"),
        ("a||b", "", "c"),
        ("(?s).", "\n", ""),
        ("[a-]", "-", "b"),
        (r"[\]]", "]", "\\"),
        ("(?U)a+", "aa", ""),
        (r"a\b-", "a-", "ab"),
        (r"a\Bb", "ab", "a"),
    ],
)
def test_what_re2_understands(expression, yes, no):
    automaton = compiled(expression)
    assert automaton.matches(yes)
    assert not automaton.matches(no)


@pytest.mark.parametrize(
    "expression",
    [
        "(", ")", "a)", "[", "[a", "[]", "[b-a]", "*", "+a", "a**", "a+*", "a??*", "a{2}{3}", "a{1001}", "a{3,2}",
        "(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", "(?>a)", "(?#c)", r"(a)\1", r"\8", r"\Z", r"\C", r"\k", r"\e", "\\",
        r"\x", r"\xg1", r"\x{110000}", r"\x{}", r"\p", r"\p{Nope}", "[[:nope:]]", "(?P<>a)", "(?P<a b>c)", "(?z)", "(?",
        "(?i", "(" * 300 + ")" * 300, "((a{100}){100}){100}",
    ],
)  # fmt: skip
def test_what_re2_refuses(expression):
    with pytest.raises(Refusal) as refusal:
        check(expression)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert expression in str(refusal.value)


@given(st.text(alphabet=r"ab\(){}[]*+?|^$.-:1,xpPQE<>=!iU", max_size=12), st.text(alphabet="ab", max_size=3))
def test_any_text_is_either_an_expression_or_refused(expression, text):
    try:
        automaton = compiled(expression)
    except Refusal:
        return
    assert automaton.matches(text) in (True, False)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("expression", ["(a*)*b", "(a|a)*b", ".*.*.*.*.*.*.*.*.*.*x", "(x+x+)+y", "(a?){50}a{50}b"])
def test_expressions_that_ruin_a_backtracking_engine_take_linear_time(expression):
    assert not compiled(expression).matches("a" * 249)
    assert matching(expression, ["a" * n + "xxxxxx" for n in range(240)]) is not None


def test_matching_gives_the_names_that_match():
    assert matching("t[0-9]+", ["t1", "t22", "u1", "t"]) == {"t1", "t22"}


def test_every_recorded_verdict_of_re2j_is_ours():
    head, *lines = (Path(__file__).parent / "re2j_verdicts.txt").read_text().splitlines()
    texts = ["" if text == '""' else text for text in head.rpartition(": ")[2].split(" ")]
    for line in lines:
        expression, _, verdict = line.partition("\t")
        try:
            automaton = compiled(expression)
        except Refusal:
            assert verdict == "refused", expression
            continue
        found = " ".join(text or '""' for text in texts if automaton.matches(text)) or "none"
        assert found == verdict, expression


@pytest.mark.parametrize(
    "expression", ["(a?b?c?)" * 1000, "((a{30}){30}){20}", "(a?){1000}", "x" * 30_000, "(a|b|)" * 1000]
)
def test_an_expression_that_would_keep_everybody_waiting_is_refused(expression):
    with pytest.raises(Refusal) as refused:
        compiled(expression)
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_long_list_of_names_is_an_expression():
    names = [f"team-{number}.orders-by-day" for number in range(300)]
    assert matching("|".join(names).replace(".", "[.]"), [*names, "other", "team-300.orders-by-day"]) == set(names)


def test_what_an_automaton_remembers_is_bounded():
    automaton = compiled("(.*a){300}.*")
    for number in range(60):
        automaton.matches("ab" * 60 + str(number) + "a" * 100)
    assert sum(len(state.places) for state in automaton._steps.values()) <= 110_000
