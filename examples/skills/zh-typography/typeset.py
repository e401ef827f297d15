#!/usr/bin/env python3
"""修正中文文稿的排版: 空格、全角标点、重复标点。不改动代码与链接。

用法: typeset.py 文件 [--mode fix|check] [--out 文件或文件夹]
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

HAN = r"\u3400-\u4dbf\u4e00-\u9fff"
FULL = "，。！？；：、（）《》“”"
FULLWIDTH = {",": "，", ".": "。", "!": "！", "?": "？", ";": "；", ":": "："}
#: 这些片段原样保留: 行内代码、链接与图片的地址、网址、邮箱、HTML 标签。
KEPT = re.compile(
    r"`+[^`]*`+|\]\([^)]*\)|<[^>]+>|https?://[^\s" + HAN + FULL + r"]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+", re.ASCII
)
FENCE = re.compile(r"\s*(```|~~~)")
EXAMPLES = 5

RULES = (
    # 半角标点: 紧跟在汉字之后, 且后面不是英文、数字或同类标点
    (re.compile(rf"(?<=[{HAN}])([,!?;:])(?=[{HAN}\s“]|$) *"), lambda found: FULLWIDTH[found[1]]),
    (re.compile(rf"(?<=[{HAN}])\.(?=\s|$) *"), lambda _: "。"),
    (re.compile(rf"(?<=[{HAN}]) ?\(([^()]*[{HAN}][^()]*)\) ?"), lambda found: f"（{found[1]}）"),
    # 重复的标点
    (re.compile(r"([，。！？；：、])\1+"), lambda found: "……" if found[0] == "。。。" else found[1]),
    # 中文与英文、数字之间
    (re.compile(rf"(?<=[{HAN}])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9%])(?=[{HAN}])"), lambda _: " "),
    # 全角标点旁的空格
    (re.compile(rf"(?<=[{HAN}，。！？；：、（）]) +(?=[，。！？；：、（）])"), lambda _: ""),
    (re.compile(rf"(?<=[，。！？；：、（）]) +(?=[{HAN}A-Za-z0-9（])"), lambda _: ""),
)


def typeset(text: str) -> str:
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    return text


def typeset_line(line: str) -> str:
    """只修正代码与链接之外的部分; 它们在修正时由一个占位字符代替。"""
    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(found[0])
        return "\ue000"

    done = typeset(KEPT.sub(keep, line))
    return re.sub("\ue000", lambda _: kept.pop(0), done)


def typeset_lines(lines: list[str]) -> Iterator[str]:
    fence = ""
    in_front_matter = bool(lines) and lines[0].rstrip() == "---"
    for number, line in enumerate(lines):
        mark = FENCE.match(line)
        if in_front_matter:
            in_front_matter = number == 0 or line.rstrip() != "---"
            yield line
        elif mark and fence in {"", mark[1]}:
            fence = "" if fence else mark[1]
            yield line
        else:
            yield line if fence or "\ue000" in line else typeset_line(line)


def read(path: Path) -> str:
    if path.is_dir():
        raise SystemExit(f"typeset.py: {path} 是文件夹, 不是文件")
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        raise SystemExit(f"typeset.py: 找不到文件: {path}") from None
    except UnicodeDecodeError:
        raise SystemExit(f"typeset.py: {path} 不是 UTF-8 文本") from None
    except OSError as error:
        raise SystemExit(f"typeset.py: {path}: {error.strerror}") from None


def write(source: Path, out: str, text: str) -> Path:
    path = Path(out)
    if out.endswith("/") or path.is_dir():
        path = path / source.name
    if path.resolve() == source.resolve():
        raise SystemExit(f"typeset.py: {path} 就是原文件, 请用 --out 指定别的位置")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    except OSError as error:
        raise SystemExit(f"typeset.py: 无法写入 {path}: {error.strerror}") from None
    return path


def as_size(count: int) -> str:
    return f"{count}B" if count < 1024 else f"{count / 1024:.1f}KB"


def main() -> None:
    parser = argparse.ArgumentParser(prog="typeset.py", description="修正中文文稿的排版。")
    parser.add_argument("file", type=Path, help="文本或 Markdown 文件 (UTF-8)")
    parser.add_argument("--mode", choices=["fix", "check"], default="fix", help="check 只报告, 不写文件")
    parser.add_argument("--out", default="mybox/output/", help="文件, 或以 / 结尾的文件夹")
    options = parser.parse_args()

    before = read(options.file).split("\n")
    after = list(typeset_lines(before))
    changed = [(n, old, new) for n, (old, new) in enumerate(zip(before, after), 1) if old != new]
    facts: dict[str, object] = {
        "operation": options.mode,
        "lines": len(before) - (not before[-1]),
        "changed_lines": len(changed),
        "examples": [{"line": n, "before": old[:120], "after": new[:120]} for n, old, new in changed[:EXAMPLES]],
    }
    if options.mode == "fix":
        text = "\n".join(after)
        path = write(options.file, options.out, text)
        facts |= {"output_path": path.as_posix(), "output_size": as_size(len(text.encode()))}
    json.dump(facts, sys.stdout, ensure_ascii=False)


if __name__ == "__main__":
    main()
