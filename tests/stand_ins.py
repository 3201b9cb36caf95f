"""What the stand-ins for a Qdrant server share: the engine, the key, the faults, and a clock."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from corral_sinks.qdrant import EmbeddedQdrant


@dataclass(kw_only=True)
class AnyFault:
    """What happens to matching requests instead of, or beside, an answer.

    Args:
        times: how many of them; then the fault is over.
        words: what the server says with a failure.
        seconds: to wait before anything.
        apply: do what was asked, even where the answer is a fault.
    """

    times: int = 1
    words: str = "injected"
    seconds: float = 0.0
    apply: bool = False

    def fits(self, *request: Any) -> bool:
        """Whether it is for a request of this kind."""
        raise NotImplementedError


class StandIn:
    """A server over a folder.

    Args:
        folder: for the embedded engine.
        api_key: that clients must send, or None.
    """

    fault: ClassVar[type[AnyFault]]

    def __init__(self, folder: Path, api_key: str | None = None) -> None:
        self.engine = EmbeddedQdrant(folder)
        self.api_key = api_key
        self.faults: list[AnyFault] = []
        self._lock = threading.Lock()

    def fail(self, **fault: Any) -> None:
        """Inject a fault."""
        self.faults.append(self.fault(**fault))

    def fault_for(self, *request: Any) -> Any:
        """Give the fault that takes a request, and count it; None where there is none."""
        with self._lock:
            found = next((one for one in self.faults if one.times > 0 and one.fits(*request)), None)
            if found is not None:
                found.times -= 1
        return found


class Clock:
    """Takes the place of `time` in what retries: waits cost nothing, and are noted.

    So a test's limits may be so long that no machine is too slow for them.
    """

    def __init__(self) -> None:
        self.waits: list[float] = []

    def monotonic(self) -> float:
        """Seconds that were waited till now."""
        return sum(self.waits)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self.waits.append(seconds)
