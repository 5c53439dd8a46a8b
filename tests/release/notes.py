"""The notes of a release, from CHANGELOG.md."""

import re

from release import versions

UNRELEASED = "Unreleased"
_SECTION = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)\s]+\)")


def section(changelog: str, name: str) -> str | None:
    """Return the text of a version's section; None if there is none."""
    heads = list(_SECTION.finditer(changelog))
    for number, head in enumerate(heads):
        if head[1] == name:
            end = heads[number + 1].start() if number + 1 < len(heads) else len(changelog)
            return changelog[head.end() : end].strip()
    return None


def of(changelog: str, version: str, *, is_rehearsal: bool = False) -> str:
    """Return the notes of a version as Markdown. Links into the repository become text, because a release page has no such files.

    A rehearsal takes the section of what is not released where the version has none. Raises ReleaseError for a version without changes.
    """
    text = section(changelog, version)
    if text is None and is_rehearsal:
        text = section(changelog, UNRELEASED)
    if not text:
        raise versions.ReleaseError(f"CHANGELOG.md has no changes under '## [{version}] - YYYY-MM-DD'; rename '## [{UNRELEASED}]'")
    plain = _LINK.sub(r"\1", text)
    return f"# drakit {version}\n\n{plain}\n"
