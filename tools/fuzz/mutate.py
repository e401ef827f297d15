"""Changes to a piece of input: small random ones, words that parsers care about, and parts of other inputs."""

import random
from collections.abc import Callable, Sequence

#: Whatever parsers of YAML, JSON, TOML, archives, prompts and paths treat in a way of its own.
TOKENS: tuple[bytes, ...] = tuple(
    token if isinstance(token, bytes) else token.encode("utf-8", "surrogatepass")
    for token in (
        *(
            "---\n",
            "...\n",
            "{",
            "}",
            "[",
            "]",
            ":",
            ": ",
            "- ",
            "\n",
            "\r\n",
            "\r",
            "\t",
            "  ",
            "#",
            "&a ",
            "*a",
            "<<: ",
        ),
        *("!!python/object:os.system ", "!!binary ", "!!int ", "%YAML 1.1\n", "| ", ">\n", "? ", "''", '""', "'", '"'),
        *("\\u0000", "\\ud800", "\\x", "\\", "\\U0010FFFF", "null", "true", "NaN", "Infinity", "-0", "1e999", "0x1F"),
        *(
            "9" * 400,
            "1_000",
            "2026-11-18",
            "=",
            "==",
            "..",
            "../",
            "/",
            "//",
            "~",
            "~nouser/",
            "$(id)",
            "${x}",
            "{{}}",
        ),
        *(
            "@",
            "@a ",
            "#ref",
            "&&",
            "||",
            ";",
            "|",
            "then ",
            "然后",
            "执行 ",
            "运行 ",
            "run ",
            "python bin/",
            "TaskOutput",
        ),
        *(
            "✅ ",
            "❌ ",
            "⏭️ ",
            "[ok] ",
            "state: success",
            " | data: {}",
            " | meta: {}",
            "name: ",
            "description: ",
            "command: ",
        ),
        *(
            "version = 1\n",
            "[skills]\n",
            '[skills."x"]\n',
            "steps:\n",
            "skills:\n",
            "params:\n",
            "schedule:\n",
            "jsonrpc",
        ),
        *('"id"', '"method"', '"params"', '"result"', '"error"', "PK\x03\x04", "PK\x05\x06", "ustar", "\x1f\x8b\x08"),
        *("\0", "\x1b[2J", "\x7f", "\x85", "\u2028", "\ufeff", "\U0001f600", "\ud800", "e\u0301", "ﬁ", "İ", "ß", "𝟙"),
        *(
            b"\xff",
            b"\xfe\xff",
            b"\xc3\x28",
            b"\xed\xa0\x80",
            b"\xf4\x90\x80\x80",
            b"\xa0\xa1",
            "a" * 300,
            "x" * 5000,
            "(" * 200,
        ),
        *("[" * 2000, "{a: " * 500, "- " * 1000, " " * 1000, "\n" * 300),
    )
)


def mutate(chance: random.Random, content: bytes, others: Sequence[bytes], most_bytes: int = 1 << 16) -> bytes:
    """One to eight changes; never longer than `most_bytes`."""
    changed = bytearray(content)
    for _ in range(1 << chance.randrange(4)):
        chance.choice(_CHANGES)(chance, changed, others)
    return bytes(changed[:most_bytes])


Change = Callable[[random.Random, bytearray, Sequence[bytes]], None]


def _place(chance: random.Random, content: bytearray) -> int:
    return chance.randrange(len(content) + 1)


def _flip(chance: random.Random, content: bytearray, _: Sequence[bytes]) -> None:
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def _set(chance: random.Random, content: bytearray, _: Sequence[bytes]) -> None:
    if content:
        content[chance.randrange(len(content))] = chance.choice(
            (0, 1, 9, 10, 32, 39, 92, 127, 128, 255, chance.randrange(256))
        )


def _insert_token(chance: random.Random, content: bytearray, _: Sequence[bytes]) -> None:
    at = _place(chance, content)
    content[at:at] = chance.choice(TOKENS)


def _replace_by_token(chance: random.Random, content: bytearray, _: Sequence[bytes]) -> None:
    at = _place(chance, content)
    content[at : at + chance.randrange(12)] = chance.choice(TOKENS)


def _remove(chance: random.Random, content: bytearray, _: Sequence[bytes]) -> None:
    at = _place(chance, content)
    del content[at : at + 1 + chance.randrange(max(1, len(content) // 4))]


def _repeat(chance: random.Random, content: bytearray, _: Sequence[bytes]) -> None:
    at = _place(chance, content)
    piece = bytes(content[at : at + 1 + chance.randrange(64)])
    content[at:at] = piece * chance.randrange(1, 6)


def _splice(chance: random.Random, content: bytearray, others: Sequence[bytes]) -> None:
    other = chance.choice(others)
    start = chance.randrange(len(other) + 1)
    at = _place(chance, content)
    content[at : at + chance.randrange(32)] = other[start : start + 1 + chance.randrange(200)]


def _swap_lines(chance: random.Random, content: bytearray, _: Sequence[bytes]) -> None:
    lines = bytes(content).split(b"\n")
    chance.shuffle(lines)
    content[:] = b"\n".join(lines)


def _number(chance: random.Random, content: bytearray, _: Sequence[bytes]) -> None:
    """Lengths and counts of binary formats."""
    at = _place(chance, content)
    size = chance.choice((1, 2, 4, 8))
    value = chance.choice((0, 1, (1 << (size * 8)) - 1, 1 << (size * 8 - 1), chance.randrange(1 << (size * 8))))
    content[at : at + size] = value.to_bytes(size, "little")


_CHANGES: tuple[Change, ...] = (
    *(_flip, _set, _insert_token, _insert_token, _replace_by_token, _replace_by_token),
    *(_remove, _repeat, _splice, _splice, _swap_lines, _number),
)
