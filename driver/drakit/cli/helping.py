"""Help texts as a terminal shows them: paragraphs flow into its width, and each example stays a line of its own."""

_EXAMPLE = "  "


def flowed(text: str) -> str:
    """Join the lines of every paragraph; those that are indented, which are commands, stay as they are."""
    paragraphs = [paragraph.strip("\n") for paragraph in text.split("\n\n")]
    return "\n\n".join(one if one.startswith(_EXAMPLE) else " ".join(one.split()) for one in paragraphs)
