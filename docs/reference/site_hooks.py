# ruff: noqa: INP001
"""Hooks of the documentation site.

Links to files of the repository that are not pages become plain code, because the site does not serve them; pictures stay.
The search dialog of the theme gets the name that screen readers need.
"""

import pathlib
import posixpath
import re
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_SEARCH = '<div class="md-search" data-md-component="search" role="dialog"'
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Replace links that leave the pages; called by MkDocs for every page."""
    folder = posixpath.dirname(page.file.src_uri)
    docs = pathlib.Path(config.docs_dir)

    def kept(match: re.Match[str]) -> str:
        text, target, _ = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        is_page = not path.startswith("..") and path.endswith(".md") and (docs / path).exists()
        return match[0] if is_page else text if text.startswith("`") else f"`{text}`"

    return "".join(part if part.startswith("```") else _LINK.sub(kept, part) for part in _FENCE.split(markdown))


def on_post_page(output: str, **_: Any) -> str:
    """Name the search dialog; called by MkDocs for every page."""
    return output.replace(_SEARCH, f'{_SEARCH} aria-label="Search"')
