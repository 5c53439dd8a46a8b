"""``python -m drakit``."""

from drakit import cli

if __name__ == "__main__":
    cli.main()
