"""The commands of ``drakit``, one module each; ``cli.app`` puts them together."""
