"""The export."""

import unittest
from datetime import date
from pathlib import Path

from shortener.export import Row, as_csv


class Exporting(unittest.TestCase):
    def test_every_link_is_in_it(self) -> None:
        rows = [Row("2", "https://example.com/", 3, date(2026, 11, 5)), Row("3", "https://example.org/", 0, None)]
        lines = as_csv(rows).decode("utf-8-sig").splitlines()
        self.assertEqual(len(lines), 3)
        self.assertIn("https://example.com/", lines[1])

    def test_it_has_the_bytes_of_the_sample(self) -> None:
        rows = [
            Row("2", "https://example.com/Read.me", 3, date(2026, 11, 5)),
            Row("3", "https://example.org/news", 0, None),
        ]
        self.assertEqual(as_csv(rows), Path("samples/export.csv").read_bytes())

    def test_an_address_with_a_semicolon_stays_in_its_column(self) -> None:
        [_, line] = as_csv([Row("2", "https://example.com/a;b", 0, None)]).decode("utf-8-sig").splitlines()
        self.assertEqual(line, '2;"https://example.com/a;b";0;')


if __name__ == "__main__":
    unittest.main()
