"""Turns `l0py/spec/*.json` into C and Python sources; run it as `scripts/generate`."""
