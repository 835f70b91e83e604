"""Finding OpenVINO's NPU, and saying why there is none: each case in a process of its own."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from npu_helpers import nothing_leaks

import ovadapter
from l0py import loader
from ovadapter import discovery


def altered(source: Path, target: Path, *names: str) -> Path:
    """A copy of a library in which some names are called otherwise: whoever looks for them does not find them."""
    data = source.read_bytes()
    for name in names:
        assert b"\0" + name.encode() + b"\0" in data
        data = data.replace(b"\0" + name.encode() + b"\0", b"\0x" + name.encode()[1:] + b"\0")
    target.write_bytes(data)
    return target


def test_what_it_knows(npu: ovadapter.NpuContext) -> None:
    assert npu.device.type == "npu"
    assert npu.context.handle == npu.l0_context
    release = discovery.openvino_version()
    assert npu.features == ovadapter.routes.Features(True, True, True, release >= (2026, 0), release >= (2026, 3))
    assert "software" in repr(npu)
    assert npu.context is npu.context
    with npu.context.alloc_host(4096) as memory:  # borrowed: closing leaves it alone
        assert memory.context.handle == npu.l0_context
    npu.context.close()
    assert npu.context.alloc_host(4096).size == 4096
    assert discovery.loaders_in_process() == [str(Path(loader.info().path).resolve())]


def test_a_core_is_made_when_none_is_given(npu: ovadapter.NpuContext) -> None:
    other = ovadapter.NpuContext()
    assert other.core is not npu.core
    assert other.l0_context == npu.l0_context


def test_contexts_made_at_once_share_what_they_know(npu: ovadapter.NpuContext) -> None:
    made: list[ovadapter.NpuContext] = []
    threads = [threading.Thread(target=lambda: made.append(ovadapter.NpuContext(npu.core))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.router for one in made] == [npu.router] * 8


@pytest.mark.parametrize("core", [5, "NPU"])
def test_what_is_no_core(core: Any) -> None:
    with nothing_leaks(), pytest.raises(TypeError, match=r"openvino\.Core, not of"):
        ovadapter.NpuContext(core)


def test_importing_needs_neither_openvino_nor_numpy(python: Any) -> None:
    script = "import ovadapter, sys; print([name for name in ('openvino', 'numpy') if name in sys.modules])"
    assert python(script).stdout == "[]\n"


def why(python: Any, script: str, **environment: str | None) -> str:
    """What NpuMissing says at the end of a script."""
    script = f"{script}\nimport ovadapter\ntry:\n    ovadapter.NpuContext(core)\nexcept ovadapter.NpuMissing as error:"
    finished = python(script + "\n    print(error)", **environment)
    assert finished.returncode == 0, finished.stderr
    return str(finished.stdout)


def test_no_openvino(python: Any) -> None:
    text = why(python, "import sys; sys.modules['openvino'] = None; core = None")
    assert "openvino is not installed: install l0py with its extra `openvino`" in text


@pytest.mark.skipif(Path("/dev/accel/accel0").exists(), reason="there may be an NPU with its driver")
def test_no_driver(python: Any) -> None:
    text = why(python, "core = None", L0PY_SOFTDRIVER="0")
    assert "OpenVINO has no NPU" in text
    assert "L0PY_SOFTDRIVER=1" in text


def test_no_loader(python: Any) -> None:
    text = why(python, "core = None", L0PY_LOADER="/nowhere/libze_loader.so.1")
    assert "there is no Level Zero loader: L0PY_LOADER=/nowhere" in text


def test_a_core_that_was_used_before(python: Any) -> None:
    script = "import openvino\ncore = openvino.Core()\ncore.available_devices"
    assert "each Core looks once. Make a new openvino.Core" in why(python, script)
    finished = python(script + "\nimport ovadapter\nprint(ovadapter.NpuContext())")
    assert "ovadapter.NpuContext" in finished.stdout, finished.stderr


def test_a_loader_that_is_too_old_for_openvino(python: Any, tmp_path: Path) -> None:
    old = altered(loader.embedded_path(), tmp_path / "libze_loader.so.1", "zeCommandListHostSynchronize")
    text = why(python, "core = None", L0PY_LOADER=str(old))
    assert f"the loader {old} (L0PY_LOADER names it) lacks zeCommandListHostSynchronize" in text
    text = why(python, f"import ctypes; ctypes.CDLL({str(old)!r}); core = None")
    assert "already loaded in this process) lacks" in text
    assert "before anything else loads a loader" in text


def test_two_loaders(python: Any, tmp_path: Path) -> None:
    other = altered(loader.embedded_path(), tmp_path / "libze_loader.so.1")
    text = why(
        python, f"import ctypes; ctypes.CDLL({str(other)!r}); core = None", L0PY_LOADER=str(loader.embedded_path())
    )
    assert "there are two Level Zero loaders in this process" in text
    assert str(other) in text


WITHOUT = """
import json, os, sys
from pathlib import Path
import numpy as np, openvino as ov
import l0py.loader
if sys.argv[1]:
    l0py.loader.software_driver_path = lambda driver: Path(sys.argv[1])
sys.path.insert(0, sys.argv[2])
import l0py, ovadapter
from l0py import softdriver
from npu_helpers import add_model, aligned_array, last_pointers
npu = ovadapter.NpuContext()
found = {"features": vars(npu.features)}
request = npu.core.compile_model(add_model([1, 1024]), "NPU").create_infer_request()
context = l0py.Context(npu.device)
x, y = context.alloc_host(4096, exportable=True), context.alloc_host(4096)
x.numpy("f4")[:] = 1
for name, source in (("fd", x), ("pages", y)):
    try:
        found[name] = npu.remote_tensor(source, [1, 1024], "f32").route
    except ovadapter.CopyRequired as error:
        found[name] = error.rule
with x.export() as fd:
    properties = {"MEM_TYPE": "SHARED_BUF", "MEM_HANDLE": hex(fd.fileno())}
    remote = npu.remote_context.create_tensor(ov.Type.f32, ov.Shape([1, 1024]), properties)
request.set_tensor("xt", remote)
request.infer()
found["result"] = float(request.get_tensor("yt").data[0, 0])
address = int(remote.get_params()["MEM_HANDLE"].astype(str), 16)
found["remote copied"] = address not in last_pointers()
array = aligned_array(4096)
request.set_tensor("xt", ov.Tensor(array.view(np.float32).reshape(1, -1), shared_memory=True))
request.infer()
found["plain copied"] = array.ctypes.data not in last_pointers()
found["plain verdict"] = ovadapter.was_copied(request, "xt").copied
with npu.bind(request, {"xt": y}, {"yt": aligned_array(4096)}, allow_copy=True) as binding:
    binding.infer()
    found["bound"] = {name: [one.copied, one.evidence] for name, one in binding.verdicts().items()}
print(json.dumps(found))
"""


def run_without(python: Any, driver: Path | None, **environment: str) -> dict[str, Any]:
    finished = python(WITHOUT, str(driver or ""), str(Path(__file__).parent), **environment)
    assert finished.returncode == 0, finished.stderr
    return dict(json.loads(finished.stdout.splitlines()[-1]))


EVERYTHING_COPIED = {"result": 2.0, "remote copied": True, "plain copied": True, "plain verdict": True}


def test_a_driver_without_mutable_lists_has_everything_copied(python: Any, tmp_path: Path) -> None:
    driver = altered(loader.software_driver_path(), tmp_path / "driver.so", "ZE_experimental_mutable_command_list")
    found = run_without(python, driver)
    assert found["features"]["mutable_lists"] is False
    assert "mutable command lists" in found["fd"]
    assert found.items() >= EVERYTHING_COPIED.items()
    assert found["bound"] == {"xt": [True, "driver record"], "yt": [True, "driver record"]}


def test_a_loader_without_mutable_lists(python: Any, tmp_path: Path) -> None:
    names = ("zeCommandListGetNextCommandIdExp", "zeCommandListUpdateMutableCommandsExp")
    old = altered(loader.embedded_path(), tmp_path / "libze_loader.so.1", *names)
    script = """
import l0py, ovadapter
npu = ovadapter.NpuContext()
print(npu.features.mutable_lists)
with l0py.Context(npu.device).alloc_host(4096) as memory:
    try:
        npu.remote_tensor(memory, [4096], "u8")
    except ovadapter.CopyRequired as error:
        print(error)
"""  # with such a loader the plugin cannot infer on a driver that has them
    finished = python(script, L0PY_LOADER=str(old))
    assert finished.stdout.startswith("False\na driver without mutable command lists"), finished.stderr
    assert "the loader must be 1.16 or newer" in finished.stdout


def test_a_driver_that_tells_by_a_flag_alone_that_it_imports_pages(python: Any, tmp_path: Path) -> None:
    driver = altered(loader.software_driver_path(), tmp_path / "driver.so", "ZE_extension_external_memmap_sysmem")
    found = run_without(python, driver)
    assert found["features"]["import_address"] is True
    assert (found["remote copied"], found["plain copied"], found["plain verdict"]) == (False, False, False)


def test_the_unaltered_driver(python: Any) -> None:
    found = run_without(python, None)
    assert (found["fd"], found["pages"]) == ("SHARED_BUF", "CPU_VA")
    assert (found["remote copied"], found["plain copied"], found["plain verdict"]) == (False, False, False)
    assert found["bound"] == {"xt": [False, "driver record"], "yt": [False, "driver record"]}


def test_doctor(python: Any) -> None:
    finished = python("import sys; from ovadapter.__main__ import main; sys.exit(main(['doctor', '--json']))")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    findings = json.loads(finished.stdout)
    assert {name: route["zero_copy"] for name, route in findings["routes"].items()} == {
        "SHARED_BUF": True,
        "CPU_VA": True,
        "keeper": True,
    }
    assert findings["devices"]["CPU"]["works"] is True
    assert findings["devices"]["GPU"]["note"].startswith("not run on hardware")
    text = python("import sys; from ovadapter.__main__ import main; sys.exit(main(['doctor']))").stdout
    assert "CPU plugin      works: by the route view\n" in text
    assert "not run on hardware" in text
    finished = python(
        "import sys; from ovadapter.__main__ import main; sys.exit(main(['doctor']))", L0PY_LOADER="/nowhere"
    )
    assert finished.returncode == 1
    assert "L0PY_LOADER=/nowhere" in finished.stdout
    assert "NOT healthy" in finished.stdout
