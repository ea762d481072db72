"""Links."""

import unittest
from datetime import datetime

from shortener.codes import number_of
from shortener.links import Links
from shortener.store import Store

NOON = datetime(2026, 11, 5, 12, 0)


class Following(unittest.TestCase):
    def setUp(self) -> None:
        self.store = Store(":memory:")
        self.addCleanup(self.store.close)
        self.links = Links(self.store)

    def test_a_code_leads_back_to_the_address(self) -> None:
        code = self.links.shorten("https://Example.com/Read.me")
        self.assertEqual(self.links.follow(code, NOON), "https://example.com/Read.me")

    def test_an_address_has_one_code_in_all_its_spellings(self) -> None:
        self.assertEqual(self.links.shorten("https://example.com"), self.links.shorten("HTTPS://EXAMPLE.COM/"))

    def test_following_counts_a_visit(self) -> None:
        code = self.links.shorten("https://example.com/")
        self.links.follow(code, NOON)
        self.assertEqual(self.store.visits(number_of(code)), [NOON])

    def test_an_unknown_code_is_an_error_and_no_visit(self) -> None:
        with self.assertRaisesRegex(LookupError, "no link with the code 'zz'"):
            self.links.follow("zz", NOON)


if __name__ == "__main__":
    unittest.main()
