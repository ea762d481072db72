"""Charts."""

import unittest
from datetime import datetime

from shortener.chart import WIDTH, chart
from shortener.stats import stats_of


class Drawing(unittest.TestCase):
    def test_the_busiest_day_has_the_longest_bar(self) -> None:
        lines = chart(stats_of([datetime(2026, 11, 5)] * 40 + [datetime(2026, 11, 6)] * 4)).split("\n")
        self.assertEqual(lines[0], "44 visits")
        self.assertEqual(lines[1], f"2026-11-05  {'#' * WIDTH} 40")
        self.assertEqual(lines[2], "2026-11-06  ### 4")

    def test_one_visit_among_many_can_be_seen(self) -> None:
        self.assertIn("# 1", chart(stats_of([datetime(2026, 11, 5)] * 900 + [datetime(2026, 11, 6)])))

    def test_no_visits_no_bars(self) -> None:
        self.assertEqual(chart(stats_of([])), "0 visits")


if __name__ == "__main__":
    unittest.main()
