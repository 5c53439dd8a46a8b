"""Device families, all of one shape: driver, config, attributes, edits, port, a library adapter, a mock.

A family knows ``core`` and the shared mock machines, never another family, and nothing of the engine, the journal, CDI files or Kubernetes.
``registry`` makes a driver by its family's name.
"""
