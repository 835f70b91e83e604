"""Installs pip into the running interpreter's environment from PyPI, for machines without ensurepip."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path

INDEX = "https://pypi.org/pypi/pip/json"


def main() -> None:
    """Fetches the newest pip wheel, checks its digest, and lets it install itself."""
    with urllib.request.urlopen(INDEX, timeout=60) as answer:
        release = json.load(answer)
    wheel = next(file for file in release["urls"] if file["packagetype"] == "bdist_wheel")
    address = urllib.parse.urljoin(INDEX, wheel["url"])  # mirrors answer relative ones
    with urllib.request.urlopen(address, timeout=120) as answer:
        data = answer.read()
    if hashlib.sha256(data).hexdigest() != wheel["digests"]["sha256"]:
        raise SystemExit("the pip wheel's digest is wrong")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / wheel["filename"]
        path.write_bytes(data)
        install = [sys.executable, f"{path}/pip", "install", "--no-index", str(path)]
        subprocess.run(install, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()
