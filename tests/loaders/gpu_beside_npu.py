"""Both software drivers in one process, in the order that the environment gives: prints what came out as JSON.

Run as a program, behind the loader that the environment makes l0py choose; in a tree with another loader as well, so
it imports nothing of these tests.
"""

from __future__ import annotations

import json
import os
import sys
import threading

import l0py
import l0py.loader
import l0py.softdriver as sd
from l0py import lib
from l0py.handles import live_objects


def exchange(gpu: l0py.Device, npu: l0py.Device) -> list[str]:
    """GPU memory seen by the NPU and the other way: what each reads of what the other writes."""
    read = []
    for maker, taker in ((gpu, npu), (npu, gpu)):
        with l0py.Context(maker) as there, l0py.Context(taker) as here:
            made = there.alloc_host(4096, exportable=True)
            with made.export() as fd:
                taken = here.import_dma_buf(fd)
            for source, target, text in ((made, taken, "first"), (taken, made, "again")):
                source.copy_from(text.encode())
                seen = bytearray(5)
                target.copy_to(seen)
                read.append(seen.decode())
            taken.close()
            made.close()
    return read


def copied(device: l0py.Device, kind: str) -> str:
    """What went into memory of the device and out again, by queues, lists and fences."""
    with l0py.Context(device) as context:
        memory, out = context.alloc_device(16), bytearray(3)
        memory.copy_from(kind.encode())
        memory.copy_to(out)
        memory.close()
        return out.decode()


def around_the_loader() -> list[int]:
    """Results of calls to functions that each driver itself gave out, with handles that the loader gave out."""
    results = []
    for driver in l0py.drivers():

        def ask(function: str, kind: str, *arguments: object, handle: int = driver.handle) -> None:
            address = lib.ffi.new("uintptr_t*")
            name = lib.ffi.new("char[]", function.encode())
            results.append(lib.zeDriverGetExtensionFunctionAddress(handle, name, address))
            results.append(lib.ffi.cast(kind, address[0])(*arguments))

        desc = lib.ffi.new("ze_context_desc_t*", {"stype": lib.ZE_STRUCTURE_TYPE_CONTEXT_DESC})
        made = lib.ffi.new("uintptr_t*")
        kind = "ze_result_t(*)(uintptr_t, const ze_context_desc_t*, uintptr_t*)"
        ask("zeContextCreate", kind, driver.handle, desc, made)
        ask("zeContextDestroy", "ze_result_t(*)(uintptr_t)", made[0])
        with l0py.Context(driver) as ours:
            ask("zeContextGetStatus", "ze_result_t(*)(uintptr_t)", ours.handle)
    return results


def churn(device: l0py.Device, rounds: int) -> int:
    """Objects made and destroyed by four threads; how often all went well."""
    done = []

    def work() -> None:
        for _ in range(rounds):
            with l0py.Context(device) as context:
                memory = context.alloc_host(4096)
                memory.close()
            done.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(done)


def forked(gpu: l0py.Device, npu: l0py.Device) -> int:
    """The exit status of a child that asks both drivers while threads of its parent use them."""
    busy = [threading.Thread(target=churn, args=(device, 50)) for device in (gpu, npu)]
    for thread in busy:
        thread.start()
    child = os.fork()
    if child == 0:
        kinds = [driver.kind for driver in l0py.drivers()]
        os._exit(0 if sorted(kinds) == ["gpu", "npu"] and npu.driver.api_version and gpu.driver.api_version else 1)
    _, status = os.waitpid(child, 0)
    for thread in busy:
        thread.join()
    return os.waitstatus_to_exitcode(status)


def inferred() -> list[float]:
    """What OpenVINO's NPU plugin makes of 0..3 with a model that doubles."""
    import numpy as np
    import openvino as ov
    from openvino import opset13 as op

    x = op.parameter([1, 4], ov.Type.f32)
    model = ov.Model([op.multiply(x, op.constant(np.float32(2)))], [x])
    compiled = ov.Core().compile_model(model, "NPU")
    return [float(value) for value in compiled(np.arange(4, dtype=np.float32)[None])[0].reshape(-1)]


def main(parts: list[str]) -> None:
    """Everything, or the named parts."""
    gpu, npu = l0py.find_device("gpu"), l0py.find_device("npu")
    every = {
        "exchange": lambda: exchange(gpu, npu),
        "copied": lambda: [copied(gpu, "gpu"), copied(npu, "npu")],
        "around": around_the_loader,
        "churn": lambda: [churn(gpu, 50), churn(npu, 50)],
        "forked": lambda: forked(gpu, npu),
        "inferred": inferred,
    }
    outcome = {name: every[name]() for name in parts or every}
    outcome["kinds"] = [driver.kind for driver in l0py.drivers()]
    outcome["software"] = [driver.is_software for driver in l0py.drivers()]
    outcome["version"] = l0py.loader.info().version
    outcome["source"] = l0py.loader.info().source
    outcome["live"] = sum(live_objects().values())
    outcome["contexts"] = [sd.record(driver=kind)["objects"].get("context", 0) for kind in ("gpu", "npu")]
    print(json.dumps(outcome))


if __name__ == "__main__":
    main(sys.argv[1:])
