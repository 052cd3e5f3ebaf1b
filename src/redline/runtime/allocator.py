"""What the C library does with memory that was freed: an update needs the same blocks again, every time."""

import ctypes

# of malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

LARGEST_KEPT_BYTES = 64 * 1024**2  # activations and gradients of an update are smaller, replay memories larger
MOST_KEPT_BYTES = 256 * 1024**2


def keep_freed_memory() -> bool:
    """Let the process keep freed blocks for itself; False where the C library has no such setting.

    By default what is freed together goes back to the system, and the next update pays for it anew, page by page: a few
    hundred page faults each time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # no glibc
        return False
    settings = ((_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES), (_M_TRIM_THRESHOLD, MOST_KEPT_BYTES))
    return all(mallopt(name, value) == 1 for name, value in settings)
