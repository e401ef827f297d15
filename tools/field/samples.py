"""A small file of each sort that strangers' examples name."""

import struct
import zlib


def _png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(b"\0\x80\x40\x20"))
        + chunk(b"IEND", b"")
    )


_MARKDOWN = """---
name: sample
description: A sample document. Use it when a sample is needed.
---

# Sample

Some words with a [link](https://example.com/a) and `code`.

## Second part

- one
- two

| a | b |
| --- | --- |
| 1 | 2 |
"""
_JSON = """{"name": "sample", "title": "Sample", "version": "1.0.0", "metadata": {"author": "somebody"}, "items": [
{"id": 1, "name": "first", "value": 1.5, "date": "2026-01-02"},
{"id": 2, "name": "second", "value": 2.5, "date": "2026-01-03"}]}
"""
_TEXTS = {
    ".csv": "date,name,amount,category\n2026-01-02,first,10.5,food\n2026-01-03,second,20,rent\n",
    ".tsv": "date\tname\tamount\n2026-01-02\tfirst\t10.5\n2026-01-03\tsecond\t20\n",
    ".json": _JSON,
    ".jsonl": '{"id": 1, "text": "first"}\n{"id": 2, "text": "second"}\n',
    ".yaml": "name: sample\nversion: 1\nitems:\n  - id: 1\n    name: first\n",
    ".yml": "name: sample\nversion: 1\nitems:\n  - id: 1\n    name: first\n",
    ".toml": 'name = "sample"\nversion = "1"\n',
    ".md": _MARKDOWN,
    ".txt": "The first line of a sample.\nThe second line, with 42 in it.\n\nA second paragraph: 中文.\n",
    ".html": "<!doctype html><html><head><title>Sample</title></head><body><h1>Sample</h1></body></html>\n",
    ".css": "body { color: #333; background: #fff }\n",
    ".xml": '<?xml version="1.0"?>\n<root><item id="1">first</item></root>\n',
    ".svg": '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>\n',
    ".py": 'import os\n\n\ndef add(a, b):\n    """Return the sum."""\n    return a + b\n\n\nprint(add(1, 2))\n',
    ".js": "export function add(a, b) {\n  return a + b;\n}\n",
    ".ts": "export function add(a: number, b: number): number {\n  return a + b;\n}\n",
    ".tsx": "export const Hello = () => <p>Hello</p>;\n",
    ".sql": "select id, name from users where id = 1;\n",
    ".srt": "1\n00:00:01,000 --> 00:00:02,000\nHello\n\n2\n00:00:03,000 --> 00:00:04,000\nWorld\n",
    ".vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\nHello\n",
    ".log": "2026-01-02 10:00:00 INFO started\n2026-01-02 10:00:01 ERROR failed: timeout\n",
    ".bib": "@article{a2020, title={A title}, author={Doe, J.}, year={2020}, journal={Journal}}\n",
    ".tex": "\\documentclass{article}\\begin{document}Hello\\end{document}\n",
    ".mmd": "graph TD\n  A --> B\n",
    ".fasta": ">one\nACGTACGT\n>two\nGGGCCC\n",
}
SAMPLES = {ending: text.encode() for ending, text in _TEXTS.items()} | {".png": _png()}
