"""Codes."""

import unittest

from shortener.codes import code_of, number_of


class Codes(unittest.TestCase):
    def test_every_number_comes_back(self) -> None:
        for number in (1, 57, 58, 59, 3364, 123456789):
            self.assertEqual(number_of(code_of(number)), number)

    def test_codes_are_short(self) -> None:
        self.assertEqual(len(code_of(58**4 - 1)), 4)

    def test_letters_that_look_alike_are_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "'O' is not used"):
            number_of("2O")

    def test_there_is_no_link_zero(self) -> None:
        with self.assertRaises(ValueError):
            code_of(0)


if __name__ == "__main__":
    unittest.main()
