"""Words that agree with a number, for messages, logs and reports."""


def noun(number: int, singular: str, plural: str = "") -> str:
    """Return the noun for a number. ``plural`` is for a noun whose plural is not the singular with an s."""
    return singular if number == 1 else plural or f"{singular}s"


def counted(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun, such as "1 claim" and "2 claims". ``plural`` is as in ``noun``."""
    return f"{number} {noun(number, singular, plural)}"
