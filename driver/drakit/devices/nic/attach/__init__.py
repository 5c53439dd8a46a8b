"""Attachment: each sandbox that uses a share gets an interface of its own, made when the container runtime calls the ``createRuntime`` hook.

``client``    the program the runtime calls on the host, and where it is kept
``messages``  what the program and the driver say to each other
``server``    the socket at which the driver listens
``attacher``  what is done for one call, and undone
``sandboxes`` the kernel's side: interfaces in other network namespaces
``plans``     what an attachment is to be, and what is noted of it
``minder``    mends and forgets attachments beside the verbs, and warns of shares that nobody attaches
``service``   all of it, as the driver uses it
"""
