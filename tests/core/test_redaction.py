"""Secrets never appear in what is written, however the stream is cut; everything else stays as it is."""

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ralph.core.redaction import Redactor, find_secrets, without_agent_keys

SECRET = "sk-ant-0123456789abcdef"
OURS = settings(deadline=None, max_examples=150)
few_letters = st.text(alphabet="ab[]", min_size=8, max_size=12)
cuts = st.lists(st.integers(0, 200), max_size=8)


def streamed(redactor: Redactor, data: bytes, places: list[int]) -> bytes:
    """The data, fed in pieces cut at those places."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    return b"".join([*(redactor.feed(piece) for piece in pieces), redactor.flush()])


class TestStreams:
    @OURS
    @given(st.binary(max_size=40), st.binary(max_size=40), cuts)
    def test_a_secret_cut_anywhere_never_appears(self, before: bytes, after: bytes, places: list[int]) -> None:
        written = streamed(Redactor([SECRET]), before + SECRET.encode() + after, places)
        assert SECRET.encode() not in written
        assert Redactor.MASK in written

    @pytest.mark.parametrize("place", range(len(SECRET) + 3))
    def test_at_every_boundary(self, place: int) -> None:
        assert streamed(Redactor([SECRET]), f"a{SECRET}b".encode(), [place]) == b"a[redacted]b"

    def test_byte_by_byte(self) -> None:
        data = f"key={SECRET}, again {SECRET}{SECRET}.".encode()
        written = streamed(Redactor([SECRET]), data, list(range(len(data))))
        assert written == b"key=[redacted], again [redacted][redacted]."

    @OURS
    @given(st.binary(max_size=200), cuts)
    def test_a_stream_without_secrets_is_unchanged(self, data: bytes, places: list[int]) -> None:
        assert streamed(Redactor([SECRET]), data, places) == data

    @OURS
    @given(st.text(alphabet="sk-ant0123", max_size=60).map(str.encode), cuts)
    def test_beginnings_of_secrets_come_out_in_the_end(self, data: bytes, places: list[int]) -> None:
        assert streamed(Redactor([SECRET]), data, places) == data

    @OURS
    @given(st.lists(few_letters, min_size=1, max_size=3), st.text(alphabet="ab[]", max_size=60), cuts)
    @example(["aaaaaaaa", "aaaaaaaaab"], "aaaaaaaaab", [8])
    @example(["abababab", "babababb"], "abababababb", [4])
    def test_secrets_within_secrets_never_appear(self, secrets: list[str], text: str, places: list[int]) -> None:
        data = "".join([text, *secrets, text]).encode()
        written = streamed(Redactor(secrets), data, places)
        for piece in written.split(Redactor.MASK):
            assert not any(secret.encode() in piece for secret in secrets)

    @OURS
    @given(st.lists(few_letters, min_size=1, max_size=3), st.text(alphabet="ab[]", max_size=60), cuts)
    def test_how_a_stream_is_cut_makes_no_difference(self, secrets: list[str], text: str, places: list[int]) -> None:
        data = "".join([text, *secrets, text]).encode()
        assert streamed(Redactor(secrets), data, places) == streamed(Redactor(secrets), data, [])

    def test_without_secrets_nothing_is_held_back(self) -> None:
        assert Redactor([]).feed(b"abc") == b"abc"

    def test_text_that_cannot_be_a_secret_is_not_held_back(self) -> None:
        redactor = Redactor([SECRET])
        assert redactor.feed(b"a line\n") == b"a line\n"
        assert redactor.feed(b"sk-an") == b""
        assert redactor.feed(b"ybody\n") == b"sk-anybody\n"

    def test_a_redactor_can_be_used_again_after_its_end(self) -> None:
        redactor = Redactor([SECRET])
        redactor.feed(b"sk-")
        assert redactor.flush() == b"sk-"
        assert redactor.flush() == b""


class TestTexts:
    @OURS
    @given(st.text(max_size=100))
    def test_text_without_secrets_is_unchanged(self, text: str) -> None:
        assert Redactor([SECRET]).text(text) == text

    @pytest.mark.parametrize("text", ["a \udcff byte", "half a pair \ud83d"])
    def test_text_that_is_not_quite_text_is_unchanged(self, text: str) -> None:
        assert ascii(Redactor([SECRET]).text(text)) == ascii(text)

    @OURS
    @given(st.text(max_size=40), st.text(max_size=40))
    def test_a_secret_in_a_text_never_appears(self, before: str, after: str) -> None:
        assert SECRET not in Redactor([SECRET]).text(before + SECRET + after)

    def test_a_secret_with_special_characters_is_taken_literally(self) -> None:
        redactor = Redactor([r".*(a|b)\d+[x]"])
        assert redactor.text(r"key .*(a|b)\d+[x] end") == "key [redacted] end"
        assert redactor.text("harmless") == "harmless"

    def test_secret_that_is_not_utf8_does_not_stop_the_engine(self) -> None:
        redactor = Redactor(["\udcff\udcfe12345678"])
        assert redactor.data(b"x \xff\xfe12345678 y") == b"x [redacted] y"
        assert ascii(redactor.text("x \udcff\udcfe12345678 y")) == "'x [redacted] y'"


class TestSecretsOfTheEnvironment:
    @pytest.mark.parametrize(
        "name",
        ["ANTHROPIC_API_KEY", "github_token", "MY_SECRET", "DB_PASSWORD", "PGPASSWD", "X_CREDENTIALS", "BASIC_AUTH"],
    )
    def test_telling_names_are_known(self, name: str) -> None:
        assert find_secrets({name: "0123456789"}) == ("0123456789",)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("HOME", "/home/somebody"),
            ("API_KEY", "short"),
            ("SSH_AUTH_SOCK", "/run/user/1000/keyring"),
            ("KEYFILE", "~/keys/mine.pem"),
        ],
    )
    def test_paths_and_short_values_are_not_secrets(self, name: str, value: str) -> None:
        assert find_secrets({name: value}) == ()

    def test_the_longest_come_first(self) -> None:
        assert find_secrets({"A_KEY": "12345678", "B_KEY": "1234567890", "C_KEY": "12345678"}) == (
            "1234567890",
            "12345678",
        )


@pytest.mark.parametrize(
    ("name", "value", "is_kept"),
    [
        ("KIRO_API_KEY", "k", False),
        ("ANTHROPIC_CUSTOM_HEADERS", "x-api-key: k", False),
        ("OPENAI_BASE_URL", "https://user:pass@example.com/v1", False),
        ("OPENAI_BASE_URL", "https://example.com/v1", True),
        ("DATABASE_URL", "postgres://user:pass@localhost/db", True),
        ("GITHUB_TOKEN", "t", True),
    ],
)
def test_checks_get_no_keys_of_agents(name: str, value: str, is_kept: bool) -> None:
    assert (name in without_agent_keys({name: value})) is is_kept
