"""``drakit demo --nic``: three shares of a real interface, made by the real driver, checked in the kernel, and all of it taken away again.

``story`` is the order of things, ``chapters`` what is shown; ``ground`` decides whether an interface may be used, ``figures`` what is asked of it,
``portrait`` is what the kernel says of it, ``note`` remembers that on disk before the first change, and ``restoring`` makes it so again, at the end
or at the next start. ``scene`` is the driver at work, ``pods`` what uses the shares, ``sending`` the traffic of those who asked for it.

Invariants: nothing is changed before the note is on disk; the note goes last, when the kernel is as it says. The interface's own name, address, MTU,
addresses and routes are never changed. No frame is sent unless asked for.
"""
