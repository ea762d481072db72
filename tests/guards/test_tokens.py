"""How the guards cut source text into tokens, and how they walk through them."""

import pytest

from ralph.verify.guards.tokens import (
    Block,
    find_bindings,
    find_branches,
    find_handlers,
    find_stop,
    lex,
    match_brackets,
    read_branch,
    split,
    strip_brackets,
    substitute_names,
)


def cut(text: str) -> list[str]:
    """Tokens that are written with blanks between them."""
    return text.split()


def read(text: str, language: str = "python") -> str:
    tokens, _ = lex(text, language)
    return " ".join(tokens)


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("python", "if a:\n    b\nc\n", "if a { b } c ;"),
        ("python", "if a: b\nc\n", "if a { b } c ;"),
        ("python", "if a:\n    if b:\n        c\nd\n", "if a { if b { c } } d ;"),
        ("python", "if a:\n    if b:\n        c", "if a { if b { c } }"),
        ("python", "if a:\nb\n", "if a { } b ;"),
        ("python", "if a:", "if a { }"),
        ("python", "if f(x[1:2]):\n    b\n", "if f ( x [ 1 : 2 ] ) { b }"),
        ("python", "if a: b = c[1:]\n", "if a { b = c [ 1 : ] }"),
        ("python", "if lambda: a:\n    b\n", "if lambda : a { b }"),
        ("python", "a = (1,\n     2,\n)\nb\n", "a = ( 1 , 2 ) ; b ;"),
        ("python", "a = )\nb\n", "a = ) ; b ;"),
        ("python", "a = 1 \\\n  + 2\n", "a = 1 + 2 ;"),
        ("python", 'f"{a} and {b.c}"\n', '"{a} and {b.c}" % ( a b c ) ;'),
        ("python", "x = f'{a}'\n", 'x = "{a}" % ( a ) ;'),
        ("python", "x = '{a}'\n", 'x = "{a}" ;'),
        ("python", "x = 'say \"a\"'\n", "x = \"say 'a'\" ;"),
        ("python", "x = '''a'''\n", 'x = "a" ;'),
        ("js", "a\nb\n", "a ; b"),
        ("js", "a =\n  b\nc", "a = b ; c"),
        ("js", "a\n  .b()\nc", "a . b ( ) ; c"),
        ("js", "f(a\nb)\nc", "f ( a b ) ; c"),
        ("js", "f(a, function () {\n  b\n  c\n})\nd", "f ( a , function ( ) { b ; c } ) ; d"),
        ("js", "{ a; }\nb", "{ a } ; b"),
        ("js", "x = `a ${b}`", 'x = "a ${b}" % ( b )'),
        ("js", "x = /a b/g", 'x = "/a b/g"'),
        ("js", "return a\n}\n{ b }", "return a } ; { b }"),
        ("js", "if (a)\n{\n  b\n}", "if ( a ) { b }"),
        ("java", "a\nb;", "a b ;"),
        ("rust", 'let a = r#"x "y" z"#;', "let a = \"x 'y' z\" ;"),
        ("go", "x := `a\nb`\ny", 'x := "a\nb" ; y'),
    ],
)
def test_every_language_is_read_as_statements_and_blocks(language: str, text: str, expected: str) -> None:
    assert read(text, language) == expected


@pytest.mark.parametrize(
    ("language", "text", "lines"),
    [
        ("python", "a\n\nb\n", [1, 1, 3, 3]),
        ("python", "a = '''x\ny'''\nb\n", [1, 1, 1, 1, 3, 3]),
        ("python", "if a:\n    b\n\n\nc\n", [1, 1, 1, 2, 2, 5, 5]),
        ("js", "a\n\nb", [1, 2, 3]),
        ("js", "/* x\ny */\na", [3]),
    ],
)
def test_a_token_knows_its_line(language: str, text: str, lines: list[int]) -> None:
    tokens, _ = lex(text, language)
    assert [token.line for token in tokens] == lines


def test_a_token_knows_its_column() -> None:
    tokens, _ = lex("a b\n  c `\nd` e\n", "js")
    assert [(token, token.column) for token in tokens if token in "abce"] == [("a", 0), ("b", 2), ("c", 2), ("e", 3)]


def test_comments_and_strings_by_themselves_are_kept_apart_with_their_lines() -> None:
    tokens, comments = lex('"""Why."""\na  # one\n# two\n"three"\n', "python")
    assert " ".join(tokens) == "a ;"
    assert sorted(comments) == [(1, '"Why."'), (2, "# one"), (3, "# two"), (4, '"three"')]


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("( a [ b ] )", {0: 5, 2: 4}),
        ("( a", {0: 2}),
        ("( [ a )", {0: 3, 1: 3}),
        ("a ) ( b )", {2: 4}),
        ("( ) )", {0: 1}),
    ],
)
def test_brackets_have_their_other_half_or_the_end(text: str, pairs: dict[int, int]) -> None:
    assert match_brackets(cut(text)) == pairs


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a , b", ["a", "b"]),
        ("f ( a , b ) , c", ["f ( a , b )", "c"]),
        ("[ a , { b , c } ] , d", ["[ a , { b , c } ]", "d"]),
        ("a ,", ["a", ""]),
        ("a ) , b", ["a ) , b"]),
    ],
)
def test_parts_are_split_outside_of_brackets(text: str, parts: list[str]) -> None:
    assert [" ".join(part) for part in split(text.split(), ",")] == parts


@pytest.mark.parametrize(
    ("text", "expected"),
    [("( a )", "a"), ("( ( a ) )", "a"), ("( a ) + ( b )", "( a ) + ( b )"), ("( a", "( a"), ("(", "("), ("a", "a")],
)
def test_brackets_around_the_whole_are_removed(text: str, expected: str) -> None:
    assert " ".join(strip_brackets(cut(text))) == expected


@pytest.mark.parametrize(("start", "stop"), [(0, 4), (4, 4), (5, 9), (9, 9)])
def test_a_statement_ends_outside_of_its_brackets(start: int, stop: int) -> None:
    tokens = cut("f ( ; ) ; g ( a ]")
    assert find_stop(tokens, match_brackets(tokens), start) == stop


@pytest.mark.parametrize(
    ("text", "head", "body"),
    [
        ("if a { b ; c }", "a", "b ; c"),
        ("if ( a ) { b }", "a", "b"),
        ("if ( a ) b ; c", "a", "b"),
        ("if ( a ) return", "a", "return"),
        ("if ( a ) - b { c }", "a", "- b { c }"),
        ("if ( a ) and b { c }", "( a ) and b", "c"),
        ("if ( a ) == b { c }", "( a ) == b", "c"),
        ("if x := a ; x { b }", "x := a ; x", "b"),
        ("if a", "a", ""),
        ("if a ; { b }", None, None),
        ("if a ) { b }", None, None),
        ("if a } { b }", None, None),
        ("if ( a )", "a", ""),
    ],
)
def test_a_branch_has_a_condition_and_a_body(text: str, head: str | None, body: str | None) -> None:
    tokens = cut(text)
    block = read_branch(tokens, match_brackets(tokens), 0)
    assert (block and " ".join(block.head), block and " ".join(block.body)) == (head, body)


def test_conditional_expression_is_not_a_branch() -> None:
    tokens = cut("x = a if b else c ; if d { e }")
    assert [block.index for block in find_branches(tokens, match_brackets(tokens))] == [8]


def test_branches_and_handlers_are_found_with_their_places() -> None:
    tokens = cut("try { a } except E { b } p . catch ( f ) ; catch ( e ) { c } except ;")
    pairs = match_brackets(tokens)
    assert list(find_handlers(tokens, pairs)) == [Block(4, ["E"], ["b"], 6), Block(16, ["e"], ["c"], 20)]
    tokens = cut("elif a { b } else if c { d }")
    assert list(find_branches(tokens, match_brackets(tokens))) == [Block(0, ["a"], ["b"], 2), Block(6, ["c"], ["d"], 8)]


@pytest.mark.parametrize(
    ("text", "bindings"),
    [
        ("x = 1 ; y", {"x": "1"}),
        ("x = f ( 1 ; 2 ) ; y", {"x": "f ( 1 ; 2 )"}),
        ("{ x = 1 }", {"x": "1"}),
        ("f ( x = 1 )", {}),
        ("a . x = 1 ;", {}),
        ("x : int = 1 ;", {"x": "1"}),
        ("a , x = 1 ;", {"a": "1 #1", "x": "1"}),
        ("a , b , x = 1 ;", {"a": "1 #1 #2", "b": "1 #1", "x": "1"}),
        ("x = 1 ; x += 1 ;", {}),
        ("x = 1 ; ++ x ;", {}),
        ("x = 1 ; x ++ ;", {}),
        ("_x := 1 ;", {"_x": "1"}),
        ("] = 1 ;", {}),
    ],
)
def test_names_have_the_values_that_they_are_given(text: str, bindings: dict[str, str]) -> None:
    assert {name: " ".join(value) for _, name, value in find_bindings(cut(text))} == bindings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f ( x )", "f ( 1 + 2 )"),
        ("x", "1 + 2"),
        ("a . x", "a . x"),
        ("x ( )", "x ( )"),
        ("x = 3", "x = 3"),
        ("y", "1 + 2"),
        ("z", "z"),
    ],
)
def test_local_names_are_replaced_by_their_values(text: str, expected: str) -> None:
    names = {"x": ["1", "+", "2"], "y": ["x"], "z": ["z", "+", "1"]}
    assert " ".join(substitute_names(text.split(), names)) == expected


def test_names_are_replaced_three_times_deep() -> None:
    names = {"a": ["b"], "b": ["c"], "c": ["d"], "d": ["e"]}
    assert substitute_names(["a"], names) == ["d"]
