#!/usr/bin/env python3
"""Converts Markdown to HTML with the standard library alone.

usage: convert.py FILE [--to html|fragment] [--out FILE_OR_FOLDER]

Everything in the source is escaped; only what this file itself writes is markup.
"""

import argparse
import html
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = """\
<!DOCTYPE html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ max-width: 46em; margin: 2em auto; padding: 0 1em; font: 16px/1.6 system-ui, sans-serif; }}
pre {{ overflow-x: auto; padding: 1em; background: #f6f8fa; }}
table {{ border-collapse: collapse; }}
th, td {{ border: 1px solid #d0d7de; padding: 0.3em 0.8em; }}
blockquote {{ margin-left: 0; padding-left: 1em; border-left: 4px solid #d0d7de; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([\w+-]*)")
HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")
QUOTE = re.compile(r" {0,3}> ?")
ITEM = re.compile(r"( *)([-*+]|(\d{1,9})[.)])[ \t]+(.*)")
TABLE_RULE = re.compile(r" *\|?(?: *:?-+:? *\|)+ *(?::?-+:?)? *$")

INLINE = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<ticks>`+)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)"
    r"|(?P<image>!)?\[(?P<text>[^\[\]]*)\]\((?P<url>[^()\s]*)(?:\s+\"(?P<title>[^\"]*)\")?\)"
    r"|<(?P<auto>(?:https?|mailto):[^<>\s]+)>"
    r"|(?P<strong>\*\*|(?<!\w)__)(?=\S)(?P<bold>.+?)(?<=\S)(?P=strong)(?![*_])"
    r"|(?<![*\dA-Za-z_])(?P<mark>[*_])(?=[^\s*_])(?P<italic>(?:(?!(?P=mark)).)+)(?<=\S)(?P=mark)(?![\dA-Za-z])"
)
SAFE_URL = re.compile(r"(?:https?:|mailto:|[^:]*(?:[/?#]|$))", re.IGNORECASE)


def inline(text: str) -> str:
    """The inside of a paragraph, a heading or a cell."""
    parts, end = [], 0
    for found in INLINE.finditer(text):
        parts += [html.escape(text[end : found.start()]), inline_markup(found)]
        end = found.end()
    return "".join([*parts, html.escape(text[end:])])


def inline_markup(found: re.Match[str]) -> str:
    if found["escaped"]:
        return html.escape(found["escaped"])
    if found["code"]:
        return f"<code>{html.escape(found['code'].strip())}</code>"
    if found["auto"]:
        return f'<a href="{html.escape(found["auto"])}">{html.escape(found["auto"])}</a>'
    if found["bold"]:
        return f"<strong>{inline(found['bold'])}</strong>"
    if found["italic"]:
        return f"<em>{inline(found['italic'])}</em>"
    return link(found)


def link(found: re.Match[str]) -> str:
    url = found["url"]
    if not SAFE_URL.match(url):
        return html.escape(found[0])  # javascript: and the like stay text
    title = f' title="{html.escape(found["title"])}"' if found["title"] else ""
    if found["image"]:
        return f'<img src="{html.escape(url)}" alt="{html.escape(found["text"])}"{title}>'
    return f'<a href="{html.escape(url)}"{title}>{inline(found["text"])}</a>'


class Blocks:
    """Reads the lines of a document, or of a quote or list item inside one, as blocks."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at = 0

    def __iter__(self) -> Iterator[str]:
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if not line.strip():
                self.at += 1
            elif fence := FENCE.match(line):
                yield self.code(fence)
            elif heading := HEADING.match(line):
                self.at += 1
                level = len(heading[1])
                yield f"<h{level}>{inline(heading[2])}</h{level}>"
            elif RULE.match(line):
                self.at += 1
                yield "<hr>"
            elif QUOTE.match(line):
                inside = [QUOTE.sub("", quoted, count=1) for quoted in self.take(QUOTE)]
                yield "<blockquote>\n" + render(inside) + "\n</blockquote>"
            elif ITEM.match(line):
                yield self.list()
            elif self.starts_table():
                yield self.table()
            else:
                yield self.paragraph()

    def take(self, pattern: re.Pattern[str]) -> list[str]:
        start = self.at
        while self.at < len(self.lines) and pattern.match(self.lines[self.at]):
            self.at += 1
        return self.lines[start : self.at]

    def code(self, fence: re.Match[str]) -> str:
        closing = re.compile(rf" {{0,3}}{re.escape(fence[1][0])}{{{len(fence[1])},}}[ \t]*$")
        self.at += 1
        start = self.at
        while self.at < len(self.lines) and not closing.match(self.lines[self.at]):
            self.at += 1
        code = "".join(html.escape(line) + "\n" for line in self.lines[start : self.at])
        self.at += 1
        language = f' class="language-{fence[2]}"' if fence[2] else ""
        return f"<pre><code{language}>{code}</code></pre>"

    def list(self) -> str:
        """Items of one indentation; what is indented deeper belongs to the item above it."""
        first = ITEM.match(self.lines[self.at])
        assert first is not None
        indent, ordered = len(first[1]), first[3] is not None
        items: list[str] = []
        while self.at < len(self.lines):
            item = ITEM.match(self.lines[self.at])
            if not item or len(item[1]) != indent or (item[3] is not None) != ordered:
                break
            self.at += 1
            items.append(self.item(item, indent))
        tag = "ol" if ordered else "ul"
        start = f' start="{int(first[3])}"' if ordered and int(first[3]) != 1 else ""
        return f"<{tag}{start}>\n" + "\n".join(items) + f"\n</{tag}>"

    def item(self, item: re.Match[str], indent: int) -> str:
        width = item.start(4)
        inside = [item[4]]
        while self.at < len(self.lines):
            line = self.lines[self.at]
            deeper = len(line) - len(line.lstrip(" ")) > indent
            blank_inside = not line.strip() and self.continues(indent)
            if not (blank_inside or (line.strip() and deeper)):
                break
            inside.append(line[min(width, len(line) - len(line.lstrip(" "))) :])
            self.at += 1
        content = render(inside)
        if content.count("<p>") == 1 and content.startswith("<p>"):
            content = content.replace("<p>", "", 1).replace("</p>", "", 1)
        return f"<li>{content}</li>"

    def continues(self, indent: int) -> bool:
        """Whether the next line with text still belongs to the item."""
        rest = next((line for line in self.lines[self.at :] if line.strip()), "")
        return len(rest) - len(rest.lstrip(" ")) > indent

    def starts_table(self) -> bool:
        following = self.lines[self.at + 1] if self.at + 1 < len(self.lines) else ""
        return "|" in self.lines[self.at] and bool(TABLE_RULE.match(following))

    def table(self) -> str:
        head = cells(self.lines[self.at])
        self.at += 2
        rows = [cells(line) for line in self.take(re.compile(r".*\|"))]
        shown = [row("th", head), *(row("td", (line + [""] * len(head))[: len(head)]) for line in rows)]
        return "<table>\n" + "\n".join(shown) + "\n</table>"

    def paragraph(self) -> str:
        start = self.at
        self.at += 1
        while self.at < len(self.lines) and not self.interrupts(self.lines[self.at]):
            self.at += 1
        lines = self.lines[start : self.at]
        broken = [inline(line.strip().removesuffix("\\")) + ("<br>" if is_broken(line) else "") for line in lines[:-1]]
        return "<p>" + "\n".join([*broken, inline(lines[-1].strip())]) + "</p>"

    @staticmethod
    def interrupts(line: str) -> bool:
        return not line.strip() or any(p.match(line) for p in (FENCE, HEADING, RULE, QUOTE, ITEM))


def is_broken(line: str) -> bool:
    return line.endswith(("  ", "\\"))


def cells(line: str) -> list[str]:
    parts = re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
    return [part.strip().replace("\\|", "|") for part in parts]


def row(tag: str, texts: list[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{inline(text)}</{tag}>" for text in texts) + "</tr>"


def render(lines: list[str]) -> str:
    return "\n".join(Blocks(lines))


def outline(lines: list[str]) -> list[str]:
    """The headings as plain text, without those inside code blocks."""
    found = re.findall(r"<h[1-6]>(.*?)</h[1-6]>", render(lines))
    return [html.unescape(re.sub(r"<[^>]+>", "", heading)) for heading in found]


def read(path: Path) -> str:
    if path.is_dir():
        raise SystemExit(f"convert.py: {path} is a folder, not a Markdown file")
    try:
        return path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise SystemExit(f"convert.py: no such file: {path}") from None
    except UnicodeDecodeError:
        raise SystemExit(f"convert.py: {path} is not UTF-8 text") from None
    except OSError as error:
        raise SystemExit(f"convert.py: {path}: {error.strerror}") from None


def target(source: Path, out: str) -> Path:
    """A folder gets the source's name with .html; anything else is the file itself."""
    path = Path(out)
    if out.endswith("/") or path.is_dir():
        path = path / f"{source.stem}.html"
    if path.resolve() == source.resolve():
        raise SystemExit(f"convert.py: {path} is the source itself: choose another --out")
    return path


def as_size(count: int) -> str:
    return f"{count}B" if count < 1024 else f"{count / 1024:.1f}KB"


def main() -> None:
    parser = argparse.ArgumentParser(prog="convert.py", description="Convert Markdown to HTML.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--to", choices=["html", "fragment"], default="html")
    parser.add_argument("--out", default="mybox/output/", help="a file, or a folder with a / at its end")
    options = parser.parse_args()

    source = read(options.file)
    lines = source.expandtabs(4).splitlines()
    path = target(options.file, options.out)
    body, headings = render(lines), outline(lines)
    if options.to == "html":
        lang = "zh" if re.search(r"[\u4e00-\u9fff]", source) else "en"
        title = html.escape(headings[0] if headings else options.file.stem)
        body = PAGE.format(lang=lang, title=title, body=body)
    else:
        body += "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body, "utf-8")
    except OSError as error:
        raise SystemExit(f"convert.py: cannot write {path}: {error.strerror}") from None
    facts = {
        "operation": "convert",
        "output_path": path.as_posix(),
        "output_size": as_size(len(body.encode())),
        "headings": headings,
    }
    json.dump(facts, sys.stdout, ensure_ascii=False)


if __name__ == "__main__":
    main()
