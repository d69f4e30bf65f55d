"""For mkdocs (mkdocs.yml): what differs between the site and the Markdown as it is read in the repository.

Links to files outside of docs/ (`../../src/…`) lead to `repo_url` when that is set, and are plain text otherwise. Remarks for
tests/lint/commands.py behind a command (`# not-run: reason`) are left out.
"""
import posixpath
import re

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```)", re.S | re.M)
REMARK = re.compile(r" +# *(?:not-run:.*|gpu-only *)$", re.M)


def outside(target, page):
    """The path from the repository's root, None for a link that stays in docs/."""
    path = target.partition("#")[0]
    if not path or "://" in path or path.startswith(("/", "mailto:")):
        return None
    full = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), path))
    return None if full == "docs" or full.startswith("docs/") else full


def on_page_markdown(markdown, page, config, files):
    def site_link(match):
        path = outside(match[3], page.file.src_uri)
        if path is None or match[1]:
            return match[0]
        return f"[{match[2]}]({config.repo_url.rstrip('/')}/blob/main/{path})" if config.repo_url else match[2]

    return "".join(REMARK.sub("", part) if part.startswith("```") else LINK.sub(site_link, part) for part in FENCE.split(markdown))
