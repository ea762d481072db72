"""Addresses."""

import unittest

from shortener.addresses import clean


class Cleaning(unittest.TestCase):
    def test_spellings_of_the_same_address_are_one(self) -> None:
        for spelling in ("https://example.com", " https://example.com/ ", "HTTPS://Example.COM/"):
            self.assertEqual(clean(spelling), "https://example.com/")

    def test_what_follows_the_host_stays_as_it_is(self) -> None:
        for address in ("https://example.com/Read.me", "https://example.com/?Key=Value", "https://example.com/#Top"):
            self.assertEqual(clean(address), address)

    def test_only_web_addresses_are_taken(self) -> None:
        for wrong in ("", "example.com", "javascript:alert(1)", "file:///etc/passwd", "https://"):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "is no web address"):
                clean(wrong)


if __name__ == "__main__":
    unittest.main()
