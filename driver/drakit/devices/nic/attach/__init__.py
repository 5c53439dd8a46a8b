"""Attachment: each sandbox that uses a share gets an interface of its own, created when the container runtime calls the ``createRuntime`` hook.

``hook_client``     the program that the runtime calls on the host, and where it is kept
``protocol``        the messages between the program and the driver
``server``          the socket at which the driver listens
``attacher``        what one call does, and how it is rolled back
``sandboxes``       the kernel's side: children of a NIC in pods' network namespaces
``attachment_plan`` the names of an attachment, and its record
``attachment_gc``   repairs and removes attachments in the background, and warns of shares that no container uses
``outcomes``        why calls fail, and their metrics
``service``         all of it, as the driver uses it
"""
