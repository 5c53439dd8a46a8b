"""The sub-commands that these tools add to ``drakit``."""
