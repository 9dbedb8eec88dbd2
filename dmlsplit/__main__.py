"""The command ``dmlsplit``, also as ``python -m dmlsplit``.

The signal handlers are installed before anything else is imported, because imports take most of the
time of a short command. An interrupt then ends the command with one line; while Python itself
starts, it still prints a traceback.
"""

# The C core of `signal`, because `signal` itself imports a dozen modules.
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
            # At exit, Python removes its handlers early, and a signal would then kill a command
            # whose work is done. The function registered first is called last.
            atexit.register(_signal.signal, number, _signal.SIG_IGN)
    from dmlsplit.cli import main as command

    return command(on_import_signal=stop)


def stop(number: int, frame: object = None) -> None:
    """End the process at once. Only for code that has nothing to clean up."""
    try:
        os.write(STDERR, b"dmlsplit: interrupted\n")
    finally:
        os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
