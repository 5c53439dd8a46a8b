"""``python -m drakit``."""

import drakit_command

if __name__ == "__main__":
    drakit_command.main()
