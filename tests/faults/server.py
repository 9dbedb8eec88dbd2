"""Runs the command line in forked children, with a fault in each. Started by harness.py.

Each line of JSON requests a run, and a line of JSON answers it. The modules that the command needs
are imported once, here, and no thread is started, so each child begins where a new process would be
after its imports.
"""

import ctypes
import encodings.utf_8_sig  # noqa: F401
import gc
import json
import os
import resource  # noqa: F401
import signal
import sys
import threading
import traceback
from functools import cache
from unittest.mock import patch

import tqdm  # noqa: F401

from dmlsplit import cli
from dmlsplit.backends.cpu import engine  # noqa: F401
from dmlsplit.execution.dxdispatch import runner  # noqa: F401
from dmlsplit.storage import npy

SECONDS = 60
npy.BLOCK_BYTES = 32  # so that small files have several blocks


def answer(request: dict, library: ctypes.CDLL) -> dict:
    fault = (request["at"], request["error"], request["signal"])
    library.choose_fault(os.fsencode(request["folder"]), *fault)
    child = os.fork()
    if not child:
        os._exit(command(request))
    _, status = os.waitpid(child, 0)
    return {
        "status": os.waitstatus_to_exitcode(status),
        "calls": library.counted_calls(),
        "failed": os.fsdecode(library.failed_call()),
    }


def command(request: dict) -> int:
    signal.alarm(SECONDS)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    # Outside of the folder, so that writing the messages does not count as calls.
    for name, number in (("out", 1), ("err", 2)):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    try:
        return cli.main(request["line"])
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        # As at the end of a process, threads finish their writes. The rest of an interpreter's exit
        # would take longer than the run.
        threading._shutdown()


def serve() -> None:
    library = ctypes.CDLL(None)
    library.choose_fault.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
    library.counted_calls.restype = ctypes.c_long
    library.failed_call.restype = ctypes.c_char_p
    cli.build_parser()  # imports the commands
    gc.freeze()  # Otherwise the first collection in each child would copy all memory.
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), library)), file=answers, flush=True)


if __name__ == "__main__":
    with patch.object(cli, "build_parser", cache(cli.build_parser)):
        serve()
