"""What a command imports is not gone over by the garbage collector."""

import gc
import subprocess
import sys

from corral.cli.starting import imports


def test_the_collector_rests_while_something_is_imported_and_then_goes_on():
    assert gc.isenabled()
    with imports():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_who_collects_no_garbage_goes_on_so():
    gc.disable()
    try:
        with imports():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_was_imported_is_left_out_from_then_on():
    code = (
        "import gc\nfrom corral.cli.starting import imports\n"
        "with imports():\n    import json\n"
        "print(gc.get_freeze_count() > 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "True\n"
