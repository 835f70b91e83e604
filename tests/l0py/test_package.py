"""What the package shows to the outside."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import pkgutil
from pathlib import Path
from typing import Any

import l0py


def public() -> list[tuple[str, Any]]:
    """Every public name of every module, with the public members of classes."""
    found: list[tuple[str, Any]] = []
    for module in pkgutil.iter_modules(l0py.__path__):
        if module.name.startswith("_"):
            continue
        loaded = importlib.import_module(f"l0py.{module.name}")
        found.append((module.name, loaded))
        for name in getattr(loaded, "__all__", []):
            value = getattr(loaded, name)
            found.append((f"{module.name}.{name}", value))
            if inspect.isclass(value):
                members = vars(value).items()
                found += [(f"{module.name}.{name}.{m}", v) for m, v in members if not m.startswith("_")]
    return found


def test_all_names_are_there_and_in_order() -> None:
    assert l0py.__all__ == sorted(l0py.__all__)
    for name in l0py.__all__:
        assert hasattr(l0py, name)


def test_everything_public_says_what_it_is() -> None:
    silent = []
    for name, value in public():
        plain = getattr(value, "__func__", value)
        if (inspect.isfunction(plain) or isinstance(value, property) or inspect.isclass(value)) and not value.__doc__:
            silent.append(name)
    assert not silent


def test_everything_public_is_annotated() -> None:
    for name, value in public():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if inspect.isfunction(function):
            signature = inspect.signature(function)
            assert signature.return_annotation is not inspect.Signature.empty, name
            for parameter in list(signature.parameters.values()):
                assert parameter.annotation is not inspect.Signature.empty or parameter.name in ("self", "cls"), name


def test_the_version_is_that_of_the_distribution() -> None:
    assert l0py.__version__ == importlib.metadata.version("l0py")


def test_importing_is_light(python: Any) -> None:
    """Modules that take longer to import than all of l0py; and the software driver's, which users ask for."""
    script = """
import sys
before = set(sys.modules)
import l0py
print(*sorted((set(sys.modules) - before) & {"numpy", "json", "inspect", "dataclasses", "pathlib", "socket", "ctypes"}))
print("l0py.softdriver" in sys.modules, l0py.softdriver.__name__)
"""
    assert python(script).stdout.split() == ["False", "l0py.softdriver"]


def test_sources_without_the_compiled_part_say_so(tmp_path: Path, python: Any) -> None:
    source = Path(__file__).parents[2] / "l0py"
    for file in source.rglob("*.py"):
        copy = tmp_path / "l0py" / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    script = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'Redirect' not in type(f).__name__]\n"
    done = python(f"{script}sys.path.insert(0, {str(tmp_path)!r})\nimport l0py")
    assert "source without its compiled part" in done.stderr
