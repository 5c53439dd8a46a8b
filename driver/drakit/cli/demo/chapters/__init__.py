"""The demo's chapters: each shows one thing on a ``world.World``, and checks it."""
