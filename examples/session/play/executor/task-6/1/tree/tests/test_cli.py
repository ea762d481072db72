"""The command line."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

from shortener.__main__ import main


class CommandLine(unittest.TestCase):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)

    def shortener(self, *words: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["--file", str(self.place / "links.db"), *words])
        return code, out.getvalue().strip(), err.getvalue().strip()

    def test_an_address_there_and_back(self) -> None:
        _, code, _ = self.shortener("add", "https://example.com/Read.me")
        self.assertEqual(self.shortener("open", code), (0, "https://example.com/Read.me", ""))
        self.assertIn("1 visit", self.shortener("stats", code)[1])

    def test_everything_is_exported(self) -> None:
        self.shortener("add", "https://example.com/")
        target = self.place / "export.csv"
        self.assertEqual(self.shortener("export", str(target))[0], 0)
        self.assertIn(b"https://example.com/", target.read_bytes())

    def test_what_is_wrong_is_said(self) -> None:
        for words in (("add", "example.com"), ("open", "zz"), ("stats", "zz"), ("stats", "O")):
            code, out, err = self.shortener(*words)
            self.assertEqual((code, out), (2, ""))
            self.assertTrue(err.startswith("shortener: "), err)


if __name__ == "__main__":
    unittest.main()
