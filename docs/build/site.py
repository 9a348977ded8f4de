"""Hook of mkdocs.yml: the site also has pages and files that are kept outside docs/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

OUTSIDE = {
    "index.md": "README.md",
    "AGENTS.md": "AGENTS.md",
    "skill.md": "skills/training-warehouse/SKILL.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "CITATION.cff": "CITATION.cff",
    "LICENSE.txt": "LICENSE",
    "NOTICE.txt": "NOTICE",
    "studies/my_cluster.toml": "studies/my_cluster.toml",
}
"""Place in the site -> file of the project."""

_MOVED = {
    "../AGENTS.md": "AGENTS.md",
    "../skills/training-warehouse/SKILL.md": "skill.md",
    "../studies/my_cluster.toml": "studies/my_cluster.toml",
    "skills/training-warehouse/SKILL.md": "skill.md",
    "CITATION.cff": "CITATION.cff",
    "LICENSE": "LICENSE.txt",
    "NOTICE": "NOTICE.txt",
    "README.md": "index.md",
}
"""Target of a link in the repository -> its target in the site."""

_FOLDERS = re.compile(r"\[([^]]*)\]\(\.\./[\w/]+/\)")
"""Links to folders of the repository, which the site does not have."""

_LINK = re.compile(r"(?<=\]\()([^)#\s]+)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files of `OUTSIDE`."""
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent
    for place, source in OUTSIDE.items():
        text = (root / source).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Have links lead to the places of the site."""
    return _LINK.sub(lambda found: _place(found[1]), _FOLDERS.sub(r"\1", markdown))


def _place(target: str) -> str:
    return _MOVED.get(target, target.removeprefix("docs/"))
