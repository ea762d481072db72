"""A tiny project with three unittest tests, two of them red."""

from playground import Playground

SLUG = "def slug(text):\n    return text.lower()\n"
HYPHENS = 'def slug(text):\n    return text.lower().replace(" ", "-")\n'
UNDERSCORES = 'def slug(text):\n    return text.lower().replace(" ", "_")\n'
SHOUTED = "def slug(text):\n    return text\n"
RIGHT = 'import re\n\n\ndef slug(text):\n    return "-".join(re.findall(r"[a-z0-9]+", text.lower()))\n'
TESTS = """\
import unittest

from slugs import slug


class Slugs(unittest.TestCase):
    def test_words_are_joined(self):
        self.assertEqual(slug("Hello World"), "hello-world")

    def test_signs_are_left_out(self):
        self.assertEqual(slug("What? Yes!"), "what-yes")

    def test_it_is_lower_case(self):
        self.assertEqual(slug("ABC"), "abc")
"""
PROJECT = {"slugs.py": SLUG, "test_slugs.py": TESTS, ".gitignore": "__pycache__/\n"}
TASK = "Make slugs of titles with punctuation"


def slugs(project: Playground, **more: str) -> None:
    """The project, committed."""
    project.write({**PROJECT, **more})
    project.commit_all()
