"""Attachment: each sandbox that uses a share gets an interface of its own, created when the container runtime calls the ``createRuntime`` hook.

``server``          the socket at which the driver listens, its messages, and the metrics of the calls
``attacher``        what one call does and how it is rolled back, and the repair of attachments in the background
``sandboxes``       the kernel's side: children of a NIC in pods' network namespaces
``service``         all of it, as the driver uses it, with the program that the runtime calls on the host
"""
