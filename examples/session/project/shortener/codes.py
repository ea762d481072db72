"""Short codes: numbers in base 58, without letters that look alike."""

ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def code_of(number: int) -> str:
    """The code of the link with this number; links are numbered from 1."""
    if number < 1:
        raise ValueError(f"links are numbered from 1, and this is {number}")
    code = ""
    while number:
        number, rest = divmod(number, len(ALPHABET))
        code = ALPHABET[rest] + code
    return code


def number_of(code: str) -> int:
    """The number of the link with this code."""
    number = 0
    for letter in code:
        if letter not in ALPHABET:
            raise ValueError(f"{code!r} is no code: {letter!r} is not used")
        number = number * len(ALPHABET) + ALPHABET.index(letter)
    return number
