"""The export."""

import unittest
from datetime import date

from shortener.export import Row, as_csv


class Exporting(unittest.TestCase):
    def test_every_link_is_in_it(self) -> None:
        rows = [Row("2", "https://example.com/", 3, date(2026, 11, 5)), Row("3", "https://example.org/", 0, None)]
        lines = as_csv(rows).decode("utf-8-sig").splitlines()
        self.assertEqual(len(lines), 3)
        self.assertIn("https://example.com/", lines[1])


if __name__ == "__main__":
    unittest.main()
