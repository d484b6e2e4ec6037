"""Which modules of tests notice which faults of some folders, and a small set that notices all.

    python bench/kill_matrix.py --drawn 20 processor/kernels codecs/maxwell.py

Faults are those of `rule_mutants.FAULTS` in these files, and as many of each file as `--drawn`
says: an operator, a condition or a number in the place of another.  All tests of `--tests` are
collected and run once, in forks of one process, to see which functions each of them calls; a fault
is then tried on each module with the tests that call what it changes.
"""

import argparse
import ast
import os
import pickle
import signal
import sys
import threading
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import edge_faults
import edit_faults
import pytest
import rule_mutants
from rich.console import Console

_ROOT = Path(__file__).resolve().parent.parent
# What has no end is noticed as well: by its time, which is that of a run with room around it.
_SLOWER, _AT_LEAST_S = 5.0, 20.0
_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}


class Fault(NamedTuple):
    """A file, its text with a fault in it, and what the fault is called."""

    name: str
    file: str
    text: str


class Call(NamedTuple):
    """A test, what it takes in seconds, and the functions that it calls, by file and name."""

    test: str
    seconds: float
    functions: frozenset[tuple[str, str]]


def files_of(parts: Sequence[str]) -> list[str]:
    """The modules of files and folders."""
    found: list[str] = []
    for part in parts:
        path = _ROOT / part
        paths = [path] if path.is_file() else sorted(path.rglob("*.py"))
        found += [str(each.relative_to(_ROOT)) for each in paths]
    return found


def named_faults(files: Sequence[str]) -> Iterator[Fault]:
    """The faults of files that somebody has written down."""
    for name, (_, file, before, after) in (
        rule_mutants.FAULTS | edit_faults.FAULTS | edge_faults.FAULTS
    ).items():
        if file in files and name not in rule_mutants.HARMLESS:
            fault = Fault(name, file, (_ROOT / file).read_text().replace(before, after))
            # What changes a table of the module alone is left to `rule_mutants`.
            if any(function != "<module>" for _, function in changed_functions(fault)):
                yield fault


def drawn_faults(file: str, count: int) -> list[Fault]:
    """Draw changes of single nodes in the functions of a file, the same ones each time."""
    text = (_ROOT / file).read_text()
    places = [at for at, node in enumerate(_nodes(ast.parse(text))) if _change(node) is not None]
    found = []
    for place in sorted(Random(file).sample(places, min(count, len(places)))):
        tree = ast.parse(text)
        node = _nodes(tree)[place]
        before = ast.unparse(node)
        change = _change(node)
        assert change is not None
        change()
        was, now = (text.partition("\n")[0][:60] for text in (before, ast.unparse(node)))
        said = f"{file}:{node.lineno}  {was}  ->  {now}"
        found.append(Fault(said, file, ast.unparse(tree)))
    return found


def _nodes(tree: ast.Module) -> list[Any]:
    """All nodes within functions, in one order."""
    found = []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            found += [node for part in function.body for node in ast.walk(part)]
    return list(dict.fromkeys(found))


def _change(node: Any) -> Callable[[], None] | None:
    """Make of a node something else; None if it has no other form."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _SWAPPED:
            return lambda: setattr(node, "ops", [_SWAPPED[type(op)]()])
        case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in _SWAPPED:
            return lambda: setattr(node, "op", _SWAPPED[type(op)]())
        case ast.If(test=test) | ast.IfExp(test=test):
            return lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.Constant(value=int(value)):
            new = not value if isinstance(value, bool) else value + 1
            return lambda: setattr(node, "value", new)
        case ast.Return(value=ast.expr()):
            return lambda: setattr(node, "value", ast.Constant(None))
        case ast.Expr(value=ast.Call()):
            return lambda: setattr(node, "value", ast.Constant(None))
    return None


def changed_functions(fault: Fault) -> set[tuple[str, str]]:
    """The functions that differ, by file and name."""
    before, after = (
        dict(_codes(compile(text, fault.file, "exec")))
        for text in (ast.unparse(ast.parse((_ROOT / fault.file).read_text())), fault.text)
    )
    return {(fault.file, name) for name, code in before.items() if after.get(name) != code}


def _codes(code: types.CodeType) -> Iterator[tuple[str, tuple[Any, ...]]]:
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    values = tuple(repr(each) for each in code.co_consts if each not in inner)
    yield code.co_qualname, (code.co_code, values, code.co_names)
    for each in inner:
        yield from _codes(each)


class Matrix:
    """A plugin of pytest's that tries faults on all modules whose tests call what they change."""

    def __init__(self, files: Sequence[str], faults: Sequence[Fault], children: int) -> None:
        self._files = {str(_ROOT / "src/ikebana" / file): file for file in files}
        self._files |= {str(_ROOT / file): file for file in files}
        self._faults = faults
        self._children = children
        self._console = Console(soft_wrap=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all tests as they are, then those of each fault, and print what follows."""
        self._items = {item.nodeid: item for item in session.items}
        self._session = session
        modules = sorted({_module(test) for test in self._items})
        calls = self._calls(modules)
        jobs = []
        for fault in self._faults:
            changed = changed_functions(fault)
            for module, of_module in calls.items():
                tests = [call for call in of_module if call.functions & changed]
                if tests:
                    jobs.append((fault, module, sorted(tests, key=lambda call: call.seconds)))
        noticed = defaultdict[str, set[str]](set)
        for (fault, module, _), failed in self._tried(jobs):
            if failed:
                noticed[fault.name].add(module)
        self._print(calls, noticed)
        return True

    def _calls(self, modules: Sequence[str]) -> dict[str, list[Call]]:
        """What the tests of each module call of the files; modules without a call are left out."""
        found: dict[str, list[Call]] = {}
        for module in modules:
            out, into = os.pipe()
            child = os.fork()
            if not child:
                os.close(out)
                _silent()
                calls = [self._called(test) for test in self._items if _module(test) == module]
                with os.fdopen(into, "wb") as file:
                    pickle.dump((calls, self._session.testsfailed), file)
                os._exit(0)
            os.close(into)
            with os.fdopen(out, "rb") as file:
                answer = file.read()
            os.waitpid(child, 0)
            calls, failed = pickle.loads(answer) if answer else ([], 1)
            if failed:
                self._console.print(f"left out, it fails as it is: {module}", markup=False)
            elif any(call.functions for call in calls):
                found[module] = calls
        return found

    def _called(self, test: str) -> Call:
        """Run a test, and see what it calls."""
        functions: set[tuple[str, str]] = set()
        seen: set[types.CodeType] = set()

        def entered(frame: types.FrameType, event: str, _: object) -> None:
            if event == "call" and (code := frame.f_code) not in seen:
                seen.add(code)
                if (file := self._files.get(code.co_filename)) is not None:
                    functions.add((file, code.co_qualname))

        threading.settrace(entered)
        sys.settrace(entered)
        begun = time.monotonic()
        try:
            self._run(test)
        finally:
            sys.settrace(None)
            threading.settrace(None)
        return Call(test, time.monotonic() - begun, frozenset(functions))

    def _run(self, test: str) -> None:
        item = self._items[test]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)

    def _tried(
        self, jobs: Sequence[tuple[Fault, str, list[Call]]]
    ) -> Iterator[tuple[tuple[Fault, str, list[Call]], bool]]:
        """Try faults, several at once; yield each with whether it was noticed."""
        running: dict[int, tuple[Fault, str, list[Call]]] = {}
        left = list(reversed(jobs))
        while left or running:
            while left and len(running) < self._children:
                job = left.pop()
                running[self._begun(job[0], job[2])] = job
            child, status = os.wait()
            yield running.pop(child), os.waitstatus_to_exitcode(status) != 0

    def _begun(self, fault: Fault, calls: Sequence[Call]) -> int:
        """Fork a child that ends with 1 if one of the tests fails; its number."""
        if child := os.fork():
            return child
        signal.alarm(int(_AT_LEAST_S + _SLOWER * sum(call.seconds for call in calls)))
        _silent()
        try:
            rule_mutants.swap_functions(*rule_mutants.with_text(fault.file, fault.text))
            for call in calls:
                self._run(call.test)
                if self._session.testsfailed:
                    break
        finally:
            os._exit(bool(self._session.testsfailed))

    def _print(self, calls: dict[str, list[Call]], noticed: dict[str, set[str]]) -> None:
        """Who notices what, the greedy cover, and the modules that are not in it."""
        show = self._console.print
        for fault in self._faults:
            by = sorted(noticed.get(fault.name, ()))
            show(f"{len(by):3}  {fault.name}  {', '.join(map(_short, by[:4]))}", markup=False)
        left = {name: set(by) for name, by in noticed.items()}
        cover: list[str] = []
        while left:
            # What is quick is better than what is slow, where both notice as much.
            best = max(
                calls,
                key=lambda m: (sum(m in by for by in left.values()), -_seconds(calls[m])),
            )
            cover.append(best)
            show(f"cover {len(cover)}: {_short(best)} {sum(best in by for by in left.values())}")
            left = {name: by for name, by in left.items() if best not in by}
        for module in sorted(set(calls) - set(cover), key=_lines, reverse=True):
            notices = sum(module in by for by in noticed.values())
            said = f"{_lines(module)} lines, {_seconds(calls[module]):.1f} s, notices {notices}"
            show(f"not in the cover: {_short(module)} ({said})")
        show(f"{len(noticed)} of {len(self._faults)} faults are noticed")


def _silent() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)


def _module(test: str) -> str:
    return test.partition("::")[0]


def _short(module: str) -> str:
    return module.removeprefix("tests/").removesuffix(".py")


def _lines(module: str) -> int:
    return (_ROOT / module).read_text().count("\n")


def _seconds(calls: Sequence[Call]) -> float:
    return sum(call.seconds for call in calls)


def main() -> None:
    """Try the faults of the files that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", help="files and folders of the product")
    parser.add_argument("--tests", nargs="+", default=["tests/unit"])
    parser.add_argument("--drawn", type=int, default=0, help="faults to draw for each file")
    parser.add_argument("--children", type=int, default=2, help="faults to try at once")
    arguments = parser.parse_args()
    os.chdir(_ROOT)
    # The same examples each time, and no search for a smaller one.
    os.environ["IKEBANA_HYPOTHESIS"] = "unattended"
    files = files_of(arguments.files)
    faults = [*named_faults(files)]
    for file in files:
        faults += drawn_faults(file, arguments.drawn)
    matrix = Matrix(files, faults, arguments.children)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=0"]
    sys.exit(pytest.main([*options, "-m", "not full", *arguments.tests], [matrix]))


if __name__ == "__main__":
    main()
