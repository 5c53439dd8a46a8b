"""``drakit demo --nic``: makes three shares of a real interface with the real driver, checks them in the kernel, and removes them.

``story`` is the order of the steps, ``chapters`` what is shown, ``figures`` the rates. ``eligibility_check`` decides if an interface may be used,
``interface_state`` reads its state from the kernel, ``saved_state`` writes that to disk before the first change, and ``restore`` restores it at the
end or at the next start. ``scene`` runs the driver, ``claims`` makes the claims, ``pods`` their users, ``traffic`` the load of ``--traffic``.

Invariants: nothing is changed before the saved state is on disk; it is removed last, when the kernel matches it. The interface's name, address, MTU,
addresses and routes are never changed. No frame is sent without ``--traffic``.
"""
