"""Cut long text that comes from outside, so that one value cannot fill a log, an error or an event."""

TEXT_MAX = 4096
"""The limit of a log field and of an error's message, in characters."""


def cut(text: str, limit: int = TEXT_MAX) -> str:
    """Return the text with at most ``limit`` characters. A longer one keeps its start and end; a mark between them has the number of those cut.

    An error begins with the field and ends with the fix, so the middle is what a reader misses least. ``limit`` must be above the length of the mark.
    """
    if not isinstance(text, str):
        raise TypeError(f"text is {type(text).__name__}; give text, str(...) of it")
    if len(text) <= limit:
        return text
    longest_mark = len(_mark(len(text)))
    head = (limit - longest_mark) // 2
    tail = limit - longest_mark - head
    return f"{text[:head]}{_mark(len(text) - head - tail)}{text[-tail:]}"


def _mark(count: int) -> str:
    return f"...[{count} characters cut]..."
