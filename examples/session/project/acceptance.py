"""What the shortener must be able to do, seen from outside."""

import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> str:
    """What it cannot do; empty where it can do everything."""
    with tempfile.TemporaryDirectory() as place:
        links, export = Path(place, "links.db"), Path(place, "export.csv")

        def shortener(*words: str) -> str:
            command = [sys.executable, "-m", "shortener", "--file", str(links), *words]
            return subprocess.run(command, check=True, text=True, capture_output=True).stdout.strip()

        try:
            code = shortener("add", "https://example.com/Read.me")
            if shortener("open", code) != "https://example.com/Read.me":
                return "the code does not lead to the address"
            if "1 visit" not in shortener("stats", code):
                return "the visit was not counted"
            shortener("export", str(export))
            return "" if code.encode() in export.read_bytes() else "the link is not in the export"
        except (OSError, subprocess.CalledProcessError) as error:
            return f"{error}\n{getattr(error, 'stderr', '')}"


if __name__ == "__main__":
    sys.exit(main() or 0)
