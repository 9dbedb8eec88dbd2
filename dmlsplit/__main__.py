"""The command ``dmlsplit``, also as ``python -m dmlsplit``.

An interrupt ends it with one line from here on: before anything else is imported, which takes most
of the time of a short command. What Python does before that is out of reach.
"""

# The core of `signal`, which itself would import a dozen modules first.
import _signal  # type: ignore[import-not-found]
import atexit
import os
import sys

STDERR = 2


def main() -> int:
    """Run the command line and return its exit status."""
    usual = (_signal.SIG_DFL, _signal.default_int_handler)
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(_signal, name, None)
        if number is not None and _signal.getsignal(number) in usual:
            _signal.signal(number, stop)
            # Python gives up handlers of its own before it has ended, and a signal would then kill
            # a command whose work is done. What is registered first is called last.
            atexit.register(_signal.signal, number, _signal.SIG_IGN)
    from dmlsplit.cli import main as command

    return command(at_once=stop)


def stop(number: int, frame: object = None) -> None:
    """End the process at once, which is right where there is nothing to put in order."""
    try:
        os.write(STDERR, b"dmlsplit: interrupted\n")
    finally:
        os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
