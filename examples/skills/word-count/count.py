#!/usr/bin/env python3
"""Counts a text in any mix of English and Chinese, as one JSON object.

usage: count.py FILE [--speed WORDS_PER_MINUTE]
"""

import argparse
import json
import math
import re
import sys
from pathlib import Path

CJK = re.compile("[\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
#: Letters and digits of any other script, with the marks that may stand inside a word.
WORD = re.compile(r"[^\W_]+(?:['’.,@_-][^\W_]+)*")
SENTENCE_END = re.compile(r"[.!?]+(?=[\s\"'”’)\]]|$)|[。！？…]+")
CJK_IN_WORDS = 0.6


def count(text: str, speed: int) -> dict[str, object]:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    cjk = len(CJK.findall(text))
    words = len(WORD.findall(CJK.sub(" ", text)))
    paragraphs = [part for part in re.split(r"\n[ \t]*\n", text) if part.strip()]
    minutes = (words + cjk * CJK_IN_WORDS) / speed
    return {
        "length": words + cjk,
        "characters": len(text.rstrip("\n")),
        "characters_without_spaces": len("".join(text.split())),
        "cjk_characters": cjk,
        "words": words,
        "sentences": sum(max(1, len(SENTENCE_END.findall(part.strip()))) for part in paragraphs),
        "lines": len(text.rstrip("\n").split("\n")) if text.strip() else 0,
        "paragraphs": len(paragraphs),
        "reading_minutes": math.ceil(minutes * 10) / 10,
    }


def read(path: Path) -> str:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise SystemExit(f"count.py: no such file: {path}") from None
    except OSError as error:
        raise SystemExit(f"count.py: {path}: {error.strerror}") from None
    if b"\0" in content:
        raise SystemExit(f"count.py: {path} is not a text file")
    for encoding in ("utf-8-sig", "gb18030"):
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise SystemExit(f"count.py: {path} is neither UTF-8 nor GB18030 text")


def main() -> None:
    parser = argparse.ArgumentParser(prog="count.py", description="Count the words of a text.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--speed", type=int, default=240, help="words a minute (default: 240)")
    options = parser.parse_args()
    if options.speed < 1:
        parser.error("--speed must be at least 1")
    json.dump(count(read(options.file), options.speed), sys.stdout, ensure_ascii=False)


if __name__ == "__main__":
    main()
