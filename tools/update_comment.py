"""Write a Markdown file as the comment of a pull request, and update it the next time.

TOKEN=... NUMBER=7 python tools/update_comment.py vestige-gate.md

The comment is found by the first line of the file, an HTML comment.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

PAGES_MAX = 20
BODY_MAX = 60_000
"""Characters of a comment. GitHub accepts 65,536."""


def main(path: Path) -> None:
    """Write the comment. What fails is a warning: the gate itself decides about the change."""
    if not path.exists():
        print(f"::warning title=Vestige gate::{path}: there is no report to comment.")
        return
    body = path.read_text(encoding="utf-8")
    if len(body) > BODY_MAX:
        body = f"{body[:BODY_MAX]}\n\n(truncated: the log of the step has all of it)\n"
    try:
        write_comment(body)
    except (URLError, TimeoutError, ValueError) as error:
        print(
            f"::warning title=Vestige gate::the comment was not written ({error})."
            " The token needs the permission `pull-requests: write`; pull requests from forks do"
            " not have it."
        )


def write_comment(body: str) -> None:
    """Update the comment of this gate, or add it."""
    marker = body.partition("\n")[0]
    api = os.environ.get("GITHUB_API_URL", "https://api.github.com")
    repository = f"{api}/repos/{os.environ['GITHUB_REPOSITORY']}"
    comments = f"{repository}/issues/{os.environ['NUMBER']}/comments"
    for page in range(1, PAGES_MAX + 1):
        found: list[dict[str, Any]] = send("GET", f"{comments}?per_page=100&page={page}")
        for comment in found:
            if str(comment.get("body", "")).startswith(marker):
                send("PATCH", f"{repository}/issues/comments/{comment['id']}", {"body": body})
                return
        if len(found) < 100:
            break
    send("POST", comments, {"body": body})


def send(method: str, url: str, data: dict[str, str] | None = None) -> Any:
    """Send a request to GitHub's API, and return the answer."""
    request = Request(  # the address comes from the workflow
        url,
        data=None if data is None else json.dumps(data).encode(),
        method=method,
        headers={
            "Authorization": f"Bearer {os.environ['TOKEN']}",
            "Accept": "application/vnd.github+json",
        },
    )
    with urlopen(request, timeout=30) as response:  # the same address
        return json.load(response)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
