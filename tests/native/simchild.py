"""A program: makes the driver calls that stdin names, one JSON object a line, and writes what they gave."""
# ruff: noqa: ANN401 - values come from JSON and from ctypes

import contextlib
import ctypes
import json
import sys
import threading
from typing import Any

import pynvml

_OUT = {
    "&int": ctypes.c_int,
    "&u32": ctypes.c_uint,
    "&u64": ctypes.c_ulonglong,
    "&ptr": ctypes.c_void_p,
    "&text": ctypes.c_char_p,
    "&symbol": ctypes.c_void_p,
}


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    )


_cuda: list[ctypes.CDLL] = []
_sets: list[Any] = []
_lock = threading.Lock()


def _plain(value: Any) -> Any:
    """Whatever pynvml gives, as JSON knows it."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, ctypes.c_uint):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, ctypes.Structure):
        return {name: _plain(getattr(value, name)) for name, *_ in value._fields_}
    if hasattr(value, "__dict__"):
        return {name: _plain(item) for name, item in vars(value).items()}
    return value


def _handle(arg: Any) -> Any:
    """["dev", 0], ["mig", 0, 1] and ["set", 0] stand for handles, which do not travel."""
    match arg:
        case ["dev", index]:
            return pynvml.nvmlDeviceGetHandleByIndex(index)
        case ["mig", index, at]:
            return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(pynvml.nvmlDeviceGetHandleByIndex(index), at)
        case ["uuid", uuid]:
            return pynvml.nvmlDeviceGetHandleByUUID(uuid)
        case ["set", index]:
            return _sets[index]
    return arg


def _nvml(name: str, args: list[Any]) -> Any:
    try:
        result = getattr(pynvml, name)(*[_handle(arg) for arg in args])
    except pynvml.NVMLError as error:
        return {"nvml_error": error.value}
    if name == "nvmlEventSetCreate":
        _sets.append(result)
        return len(_sets) - 1
    if name.startswith("nvmlEventSetWait"):
        uuid = pynvml.nvmlDeviceGetUUID(ctypes.cast(result.device, pynvml.c_nvmlDevice_t))
        return {"uuid": uuid, "type": result.eventType, "data": result.eventData}
    return None if isinstance(result, pynvml.c_nvmlDevice_t) else _plain(result)


def _symbol_at(address: int | None) -> str | None:
    """The exported symbol that an address belongs to."""
    info = _DlInfo()
    if address is None or not ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(info)):
        return None
    return str(info.symbol.decode())


def _cuda_call(name: str, args: list[Any]) -> list[Any]:
    """The status, then what came back through each "&type" argument: "&buffer" is a text, "&symbol" a pointer."""
    if not _cuda:
        _cuda.append(ctypes.CDLL("libcuda.so.1"))
    real: list[Any] = []
    outs: list[Any] = []
    for arg in args:
        if isinstance(arg, str) and arg.startswith("&"):
            out: Any = ctypes.create_string_buffer(64) if arg == "&buffer" else _OUT[arg]()
            outs.append((arg, out))
            real.append(out if arg == "&buffer" else ctypes.byref(out))
        elif isinstance(arg, str):
            real.append(arg.encode())
        else:
            real.append(ctypes.c_ulonglong(arg))
    status = getattr(_cuda[0], name)(*real)
    return [status, *[_symbol_at(out.value) if kind == "&symbol" else _plain(out.value) for kind, out in outs]]


def _answer(request: dict[str, Any]) -> None:
    call, args = request["call"], request["args"]
    if call == "draw":
        result: Any = ctypes.CDLL("libGLX_nvidia.so.0").sim_draw(*args)
    else:
        result = _cuda_call(call, args) if call.startswith("cu") else _nvml(call, args)
    with _lock, contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps({"id": request["id"], "result": result}) + "\n")
        sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if request["thread"]:
            threading.Thread(target=_answer, args=(request,), daemon=True).start()
        else:
            _answer(request)


if __name__ == "__main__":
    main()
