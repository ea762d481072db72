"""Copy the vendored modules of the web page from npm packages and write VENDOR.json: `python docs/vendor_web.py DIRECTORY`.

DIRECTORY holds the unpacked packages, as `npm pack NAME && tar xzf` leaves them: `preact-11.2.0/package/...`.
"""

import hashlib
import json
import sys
from pathlib import Path

STATIC = Path(__file__).resolve().parent.parent / "src" / "ralph" / "web" / "static"
MODULES = (
    ("preact", "dist/preact.mjs", "preact.js"),
    ("preact", "hooks/dist/hooks.mjs", "hooks.js"),
    ("htm", "dist/htm.module.js", "htm.js"),
)
"""Package, path in it, and file here."""
CHANGES = (('from"preact"', 'from"./preact.js"'),)
"""Browsers resolve no package names, and an import map would be inline code, which the page forbids."""


def main(source: Path) -> None:
    """Write the modules, their licenses and the list of both."""
    vendor, files, licenses = STATIC / "vendor", [], {}
    vendor.mkdir(exist_ok=True)
    for name, path, target in MODULES:
        package = next(source.glob(f"{name}-*/package"))
        facts = json.loads((package / "package.json").read_text())
        original = (package / path).read_bytes()
        text = original.decode().partition("//# sourceMappingURL=")[0].rstrip() + "\n"
        for old, new in CHANGES:
            text = text.replace(old, new)
        (vendor / target).write_text(text)
        licenses[f"LICENSE-{name}"] = (package / "LICENSE").read_text()
        files.append(
            {
                "file": f"vendor/{target}",
                "name": name,
                "version": facts["version"],
                "license": facts["license"],
                "source": f"npm:{name}@{facts['version']}/{path}",
                "source_sha256": hashlib.sha256(original).hexdigest(),
                "sha256": hashlib.sha256(text.encode()).hexdigest(),
            }
        )
    for name, text in licenses.items():
        (vendor / name).write_text(text)
    listing = {"changes": "source map comments removed; package names in imports are paths", "files": files}
    (STATIC / "VENDOR.json").write_text(json.dumps(listing, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
