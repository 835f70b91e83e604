from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import l0py
from l0py import __main__ as command_line
from l0py import diagnostics, loader, softdriver


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "l0py", *arguments]
    kept = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=kept, check=False, timeout=120)


def test_info() -> None:
    done = run("info", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["l0py"] == l0py.__version__
    assert told["drivers"][0]["software"]
    assert told["drivers"][0]["devices"][0]["type"] == "npu"
    assert told["loader"]["source"]
    assert told["environment"]["L0PY_SOFTDRIVER"] == os.environ["L0PY_SOFTDRIVER"]
    assert told["error"] is None
    text = run("info")
    assert text.returncode == 0
    assert "l0py software NPU (npu)" in text.stdout


def test_both_software_drivers() -> None:
    told = json.loads(run("info", "--json", L0PY_SOFTDRIVER="npu,gpu").stdout)
    assert sorted(driver["kind"] for driver in told["drivers"]) == ["gpu", "npu"]
    assert "GPU: l0py software GPU" in run("doctor", L0PY_SOFTDRIVER="npu,gpu").stdout
    assert "GPU" not in run("doctor", L0PY_SOFTDRIVER="npu").stdout


def test_a_reader_that_leaves_early() -> None:
    """As `| head -1` does."""
    command = [sys.executable, "-m", "l0py", "info"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout
        assert program.stderr
        program.stdout.close()
        said = program.stderr.read()
    assert (program.returncode, said) == (1, "")


def test_info_without_a_driver_tells_what_there_is() -> None:
    done = run("info", "--json", L0PY_SOFTDRIVER="0", ZE_ENABLE_ALT_DRIVERS="/nonexistent.so")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert told["drivers"] == []
    assert told["loader"]["path"]
    assert "L0PY_SOFTDRIVER=1" in told["error"]
    assert "zeInit was not called" not in told["error"]


def test_doctor() -> None:
    done = run("doctor")
    assert "ok    NPU: l0py software NPU" in done.stdout
    lines = json.loads(run("doctor", "--json").stdout)
    assert all(set(line) == {"ok", "found", "advice"} for line in lines)
    sick = run("doctor", L0PY_SOFTDRIVER="0", ZE_ENABLE_ALT_DRIVERS="/nonexistent.so")
    assert sick.returncode == 1
    assert "FAIL  no driver" in sick.stdout
    assert "FAIL  ZE_ENABLE_ALT_DRIVERS names /nonexistent.so, which loaders pass over: " in sick.stdout
    wrong = run("doctor", ZE_ENABLE_ALT_DRIVERS=f"{softdriver.path('gpu')},libm.so.6")
    assert "names libm.so.6, which loaders pass over: it is no Level Zero driver" in wrong.stdout
    assert wrong.stdout.count("FAIL") == 1
    blind = run("doctor", L0PY_LOADER="/nonexistent")
    assert blind.returncode == 1
    assert "FAIL  no loader: L0PY_LOADER=/nonexistent" in blind.stdout
    assert "correct L0PY_LOADER, or unset it" in blind.stdout
    assert "FAIL  NPU: none: first see to the loader" in blind.stdout
    assert "L0PY_SOFTDRIVER=npu,gpu stands in for one" in run("doctor", L0PY_SOFTDRIVER="gpu").stdout


def test_doctor_looks_for_the_reason_why_there_is_no_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("L0PY_SOFTDRIVER", "0")
    monkeypatch.setattr(diagnostics, "_names", lambda told, kind: "")
    monkeypatch.setattr(loader, "driver_problem", lambda path: "it is not there")
    (advice,) = [advice for _, found, advice in diagnostics.doctor() if found == "NPU: none"]
    assert ("there is no /dev/accel/accel*" in advice) == (not any(Path("/dev/accel").glob("accel*")))
    assert "neither libze_intel_npu.so.1 nor libze_intel_vpu.so.1 can be opened" in advice
    monkeypatch.setattr(loader, "driver_problem", lambda path: "" if "npu" in path else "it is not there")
    assert not any("libze_intel" in advice for _, _, advice in diagnostics.doctor())


def test_a_release_that_nobody_imitates() -> None:
    wrong = run("info", L0PY_SOFTDRIVER="npu,gpu", L0PY_SOFTGPU_RELEASE="1.2")
    assert wrong.returncode == 1
    assert "L0PY_SOFTGPU_RELEASE=1.2 in the environment means nothing" in wrong.stderr
    assert "  L0PY_SOFTGPU_RELEASE=1.2\n" in wrong.stdout
    releases = re.findall(r"\d+\.\d+(?=,)", wrong.stderr)
    assert releases == ["22.43", "26.13", "26.14"]
    for release in (*releases, ""):
        assert run("info", L0PY_SOFTDRIVER="npu,gpu", L0PY_SOFTGPU_RELEASE=release).returncode == 0
    assert run("info", L0PY_SOFTDRIVER="1", L0PY_SOFTGPU_RELEASE="1.2").returncode == 0  # that driver is not there


def test_doctor_knows_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: pytest.TempPathFactory) -> None:
    monkeypatch.setattr(loader, "software_driver_path", lambda _: tmp_path / "nothing")  # type: ignore[operator]
    assert diagnostics.doctor()[0] == (
        False,
        f"missing: {tmp_path}/nothing, {tmp_path}/nothing",
        "install l0py again",
    )


def test_paths() -> None:
    assert run("softdriver", "--path").stdout.strip() == str(softdriver.path())
    both = run("softdriver", "--drivers", "gpu,npu", "--path").stdout.strip()
    assert both == f"{softdriver.path('gpu')},{softdriver.path('npu')}"
    assert run("softdriver", "--loader-path").stdout.strip() == str(softdriver.loader_path())


def test_a_command_runs_on_the_software_driver() -> None:
    script = "import l0py, sys; print(l0py.find_device().name, sys.argv[1:]); sys.exit(7)"
    done = run("softdriver", "--", sys.executable, "-c", script, "--", "-x", L0PY_SOFTDRIVER="0")
    assert done.stdout.strip() == "l0py software NPU ['--', '-x']", done.stderr
    assert done.returncode == 7


def test_a_command_runs_on_both_software_drivers() -> None:
    script = "import l0py; print(l0py.find_device('gpu').name, l0py.find_device('npu').name)"
    done = run("softdriver", "--drivers", "npu,gpu", "--", sys.executable, "-c", script, L0PY_SOFTDRIVER="0")
    assert done.stdout.strip() == "l0py software GPU l0py software NPU", done.stderr
    unknown = run("softdriver", "--drivers", "tpu", "--", "ls")
    assert (unknown.returncode, unknown.stderr.strip()) == (1, "l0py: 'tpu' is no software driver: there are npu, gpu")


def test_a_command_that_knows_nothing_of_l0py() -> None:
    pytest.importorskip("openvino")
    # Flushed, because OpenVINO's telemetry forks from a thread: the child would write what is buffered once more.
    script = "import openvino; print(openvino.Core().get_property('NPU', 'FULL_DEVICE_NAME'), flush=True)"
    done = run("softdriver", "--", sys.executable, "-c", script, L0PY_SOFTDRIVER="0", L0PY_LOADER="")
    assert done.stdout.strip() == "l0py software NPU", done.stderr


def test_wrong_command_lines() -> None:
    assert run("softdriver").returncode == 2
    assert run().returncode == 2
    assert run("info", "--", "ls").returncode == 2
    assert "unrecognized arguments: ls" in run("info", "ls").stderr
    forgotten = run("softdriver", "--drivers", "npu,gpu", "python", "x.py")
    assert forgotten.returncode == 2
    assert "comes after --: softdriver ... -- python x.py" in forgotten.stderr
    missing = run("softdriver", "--", "/nonexistent/command")
    assert missing.returncode == 127
    assert "/nonexistent/command" in missing.stderr
    assert run("softdriver", "--", "").returncode == 127
    lost = run("softdriver", "--", "ls", L0PY_LOADER="/nonexistent")
    assert lost.returncode == 1
    assert lost.stderr.startswith("l0py: L0PY_LOADER=/nonexistent")


def test_a_loader_of_another_name_is_preloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = command_line.loader.LoaderInfo("/opt/my_loader.so", "override", "", 0)
    monkeypatch.setattr(command_line.loader, "info", lambda: bound)
    monkeypatch.setenv("LD_PRELOAD", "/other.so")
    monkeypatch.setenv("ZE_ENABLE_ALT_DRIVERS", "")
    assert command_line._environment()["LD_PRELOAD"] == "/other.so:/opt/my_loader.so"
    system = bound._replace(source="system")
    monkeypatch.setattr(command_line.loader, "info", lambda: system)
    assert command_line._environment()["LD_PRELOAD"] == "/other.so"
