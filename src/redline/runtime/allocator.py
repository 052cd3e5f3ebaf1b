"""What the C library does with memory that was freed: an update needs the same blocks again, every time."""

import ctypes

# of malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

LARGEST_KEPT_BYTES = 32 * 1024**2  # the most that every glibc takes; the blocks of an update are smaller
KEPT_AT_THE_END_BYTES = 256 * 1024**2  # free memory behind the last block in use; what lies between blocks stays anyway


def keep_freed_memory() -> bool:
    """Let the process keep freed blocks for itself; False where the C library has no such setting.

    By default what is freed together goes back to the system, and the next update pays for it anew, page by page: a few
    hundred page faults each time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # no glibc
        return False
    settings = ((_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES), (_M_TRIM_THRESHOLD, KEPT_AT_THE_END_BYTES))
    taken = [mallopt(name, value) == 1 for name, value in settings]
    return all(taken)
