"""How much work code does, counted: the same on every machine, whatever else that does."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple


class Work(NamedTuple):
    """What a function has done: bytecode instructions of Python, and calls of functions in C."""

    instructions: int
    calls: int


def work_of(run: Callable[[], object]) -> Work:
    """Count the work of a function, which has to have filled its caches before."""
    instructions = calls = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal instructions
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            instructions += 1
        return trace

    def profile(_: FrameType, event: str, __: Any) -> None:
        nonlocal calls
        calls += event == "c_call"

    before = sys.gettrace(), sys.getprofile()
    gc.collect()
    gc.disable()
    try:
        sys.settrace(trace)
        try:
            run()
        finally:
            sys.settrace(before[0])
        sys.setprofile(profile)
        try:
            run()
        finally:
            sys.setprofile(before[1])
    finally:
        gc.enable()
    return Work(instructions, calls)
