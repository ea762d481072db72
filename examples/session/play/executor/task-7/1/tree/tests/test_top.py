"""The links that are used most."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

from shortener.__main__ import main
from shortener.ranking import ranking


class Top(unittest.TestCase):
    def test_the_busiest_come_first_and_equal_ones_by_code(self) -> None:
        self.assertEqual(ranking({"4": 1, "3": 2, "2": 1, "5": 0}, 3), [("3", 2), ("2", 1), ("4", 1)])

    def test_not_more_than_asked_for(self) -> None:
        self.assertEqual(ranking({"2": 1, "3": 2}, 1), [("3", 2)])

    def test_it_can_be_asked_for(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                for words in (["top"], ["add", "https://example.com/"], ["open", "2"], ["top", "3"]):
                    self.assertEqual(main(["--file", str(Path(place, "links.db")), *words]), 0)
            lines = said.getvalue().splitlines()
            self.assertEqual((lines[0], lines[-1].split()), ("no visits yet", ["1", "2", "https://example.com/"]))


if __name__ == "__main__":
    unittest.main()
