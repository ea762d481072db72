"""Statistics."""

import unittest
from datetime import date, datetime

from shortener.stats import Stats, stats_of


class Counting(unittest.TestCase):
    def test_visits_are_counted_by_day(self) -> None:
        visits = [datetime(2026, 11, 5, 23, 59), datetime(2026, 11, 6, 0, 0), datetime(2026, 11, 5, 8, 0)]
        told = stats_of(visits)
        self.assertEqual(told.by_day, ((date(2026, 11, 5), 2), (date(2026, 11, 6), 1)))
        self.assertEqual((told.visits, told.last), (3, date(2026, 11, 6)))

    def test_a_link_that_nobody_visited(self) -> None:
        self.assertEqual(stats_of([]), Stats(0, None, ()))


if __name__ == "__main__":
    unittest.main()
