"""Shows a folder read-only through overlayfs, in the mount namespace of a run.

A read-only bind mount does not stop `connect` to a unix socket in it, nor opening a FIFO. Seen through an overlay
they are other inodes: nobody listens on that socket, and the other end of that FIFO is not the host's. Regular files
are read from the same page cache as before.

Covered: sockets and FIFOs in the folder, whenever they appear; devices, by nodev.
Not covered: what is mounted below the folder (whoever calls mounts each of those by itself); a folder that lies on two
overlays already, or on a file system that cannot be a lower layer: OSError.
"""

import os
from typing import Final

from skillyard.sandbox.syscalls import call

_FSOPEN_CLOEXEC, _FSMOUNT_CLOEXEC = 1, 1
_SET_FLAG, _SET_STRING, _SET_FD, _CREATE = 0, 1, 5, 6
#: Read-only, nosuid, nodev.
_ATTRIBUTES: Final = 1 | 2 | 4


def show(folder: int, empty: int) -> int:
    """Return a detached mount that shows `folder`. Both are O_PATH descriptors of folders.

    Overlayfs wants two layers; `empty` is the lower one, so that the folder's own attributes are seen. Layers go by
    descriptor, because names may hold commas and colons, and because a path could be swapped.
    """
    context = call("fsopen", b"overlay", _FSOPEN_CLOEXEC)
    try:
        # Without it the marks of overlayfs are trusted.* attributes, which a user namespace may not read.
        call("fsconfig", context, _SET_FLAG, b"userxattr", None, 0)
        # One device number for files and folders, where inode numbers leave room for that.
        call("fsconfig", context, _SET_STRING, b"xino", b"auto", 0)
        call("fsconfig", context, _SET_FD, b"lowerdir+", None, folder)
        call("fsconfig", context, _SET_FD, b"lowerdir+", None, empty)
        call("fsconfig", context, _CREATE, None, None, 0)
        return call("fsmount", context, _FSMOUNT_CLOEXEC, _ATTRIBUTES)
    finally:
        os.close(context)
