"""Let a process write the stacks of its threads on SIGUSR1; Python imports this itself."""

import faulthandler
import os
import signal

if file := os.environ.get("CHAOS_STACKS"):
    # Forks have the file, too.
    faulthandler.register(signal.SIGUSR1, open(file, "ab"))  # noqa: SIM115
