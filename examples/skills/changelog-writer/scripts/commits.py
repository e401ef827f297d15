#!/usr/bin/env python3
"""Lists the commits since a tag, grouped by kind, as Markdown. Reads the repository and changes nothing.

usage: commits.py [--since REVISION] [--until REVISION]

Conventional Commits (`feat: …`, `fix(parser): …`, `feat!: …`) are recognised; everything else is listed under Other.
"""

import argparse
import re
import subprocess
import sys

SUBJECT = re.compile(r"(?P<kind>[a-zA-Z]+)(?:\((?P<scope>[^)]*)\))?(?P<breaking>!)?[:：]\s*(?P<text>.+)")
TITLES = {"breaking": "Breaking", "feat": "Features", "fix": "Fixes", "other": "Other"}
FIELD, RECORD = "\x1f", "\x1e"


def git(*args: str) -> str:
    try:
        ended = subprocess.run(["git", *args], capture_output=True, check=False)
    except FileNotFoundError:
        raise SystemExit("commits.py: git is not installed") from None
    if ended.returncode != 0:
        reason = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        raise SystemExit(f"commits.py: git {args[0]}: {reason[0] if reason else 'failed'}")
    return ended.stdout.decode("utf-8", "replace")


def latest_tag(until: str) -> str:
    """The nearest tag below `until`; empty where there is none."""
    ended = subprocess.run(["git", "describe", "--tags", "--abbrev=0", until], capture_output=True, check=False)
    return ended.stdout.decode("utf-8", "replace").strip() if ended.returncode == 0 else ""


def commits(since: str, until: str) -> list[tuple[str, str, str]]:
    """(hash, subject, body), the newest first, without merges."""
    selected = f"{since}..{until}" if since else until
    form = f"--format=%h{FIELD}%s{FIELD}%b{RECORD}"
    log = git("log", "--no-merges", form, "--end-of-options", selected, "--")
    records = [record.strip("\n").split(FIELD) for record in log.split(RECORD) if record.strip()]
    return [(short, subject, body) for short, subject, body in records]


def sort_in(subject: str, body: str) -> tuple[str, str]:
    """The group, and the text without its prefix."""
    found = SUBJECT.fullmatch(subject)
    breaks = "BREAKING CHANGE" in body
    if not found:
        return ("breaking" if breaks else "other"), subject
    text = f"{found['scope']}: {found['text']}" if found["scope"] else found["text"]
    if breaks or found["breaking"]:
        return "breaking", text
    kind = found["kind"].lower()
    return (kind, text) if kind in {"feat", "fix"} else ("other", subject)


def main() -> None:
    parser = argparse.ArgumentParser(prog="commits.py", description="List commits by kind, as Markdown.")
    parser.add_argument("--since", help="a tag or commit, itself not included (default: the latest tag)")
    parser.add_argument("--until", default="HEAD", help="the last commit to list (default: HEAD)")
    options = parser.parse_args()
    for revision in (options.since, options.until):
        if revision is not None and (revision.startswith("-") or not revision.strip()):
            parser.error(f"{revision!r} is no revision")

    git("rev-parse", "--git-dir")
    since = options.since or latest_tag(options.until)
    groups: dict[str, list[str]] = {kind: [] for kind in TITLES}
    for short, subject, body in commits(since, options.until):
        group, text = sort_in(subject, body)
        groups[group].append(f"- {text} ({short})")
    print(f"# Commits {f'since {since}' if since else 'from the beginning'}")
    for kind, lines in groups.items():
        if lines:
            print(f"\n## {TITLES[kind]}\n")
            print("\n".join(lines))
    if not any(groups.values()):
        print("\nNone.")


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    main()
