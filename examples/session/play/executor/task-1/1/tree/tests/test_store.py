"""The store."""

import tempfile
import unittest
from datetime import datetime
from pathlib import Path

from shortener.store import Store

NOON = datetime(2026, 11, 5, 12, 0)


class Storing(unittest.TestCase):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.path = Path(place.name, "links.db")
        self.store = self.opened()

    def opened(self) -> Store:
        store = Store(self.path)
        self.addCleanup(store.close)
        return store

    def test_a_link_is_there_when_the_file_is_opened_again(self) -> None:
        number = self.store.add("https://example.com/")
        self.assertEqual(self.opened().url(number), "https://example.com/")

    def test_the_same_address_keeps_its_number(self) -> None:
        first = self.store.add("https://example.com/")
        other = self.store.add("https://example.org/")
        self.assertEqual(self.store.add("https://example.com/"), first)
        self.assertEqual(self.store.numbers(), [first, other])

    def test_visits_come_in_order(self) -> None:
        number = self.store.add("https://example.com/")
        for hour in (14, 9, 12):
            self.store.visit(number, NOON.replace(hour=hour))
        self.assertEqual([at.hour for at in self.store.visits(number)], [9, 12, 14])

    def test_what_is_not_there_leads_nowhere(self) -> None:
        self.assertIsNone(self.store.url(7))
        self.assertEqual(self.store.visits(7), [])


if __name__ == "__main__":
    unittest.main()
