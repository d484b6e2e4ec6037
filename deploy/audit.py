"""Look the packages of deploy/requirements.txt up among known vulnerabilities.

    python deploy/audit.py PIP_AUDIT

PIP_AUDIT is the program, which asks PyPI's database.  Exit status 0: nothing is known.  1: what is
known is printed.  2: the database could not be asked, so nothing is known of any package.
"""

import json
import subprocess
import sys
from pathlib import Path

_LOCKED = Path(__file__).resolve().parent / "requirements.txt"
_LONGEST_S = 600


def main(program: str) -> int:
    """Ask, and say what came of it; return the exit status."""
    words = [program, "--disable-pip", "--require-hashes", "--requirement", str(_LOCKED)]
    words += ["--format", "json", "--progress-spinner", "off", "--timeout", "15"]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=_LONGEST_S
        )
    except subprocess.TimeoutExpired:
        return _not_asked(f"there was no answer within {_LONGEST_S} s")
    try:
        asked = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        told = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return _not_asked(told[-1])
    skipped = [each["name"] for each in asked if "skip_reason" in each]
    if skipped:
        # Without a network it says so of each package, and that nothing is known.
        whom = "any package" if len(skipped) == len(asked) > 1 else ", ".join(skipped)
        return _not_asked(f"it has no answer for {whom}")
    known = [(each, found) for each in asked for found in each["vulns"]]
    for each, found in known:
        mended = ", ".join(found["fix_versions"]) or "no version"
        print(f"{each['name']} {each['version']}: {found['id']}, mended in {mended}")
    print(f"{len(asked)} packages, {len(known)} known vulnerabilities")
    return 1 if known else 0


def _not_asked(why: str) -> int:
    print(
        f"The database of vulnerabilities could not be asked: {why}\n"
        "Nothing was audited. It needs https://pypi.org; try again where that can be reached.",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
