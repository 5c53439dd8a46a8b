# ruff: noqa: INP001
"""Hooks of the documentation site: links to files of the repository that are no pages become plain code, since the site does not serve them."""

import pathlib
import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
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
