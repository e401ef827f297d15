"""What looks like a secret: one pattern for logs, results and excerpts.

Programs may print millions of characters that start like a key: no part of the pattern goes over the same ones twice.
"""

import re
from functools import cache

MASK = "•••"
_KEYS = r"""
      \b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}                      # model providers
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_\w{20,}    # GitHub
    | \bxox[abprs]-[A-Za-z0-9-]{10,}                         # Slack
    | \bAKIA[0-9A-Z]{16}\b                                   # AWS
    | \bAIza[0-9A-Za-z_-]{30,}                               # Google
    | \beyJ(?:(?!-eyJ)[\w-]){10,}+\.eyJ[\w-]{10,}(?:\.[\w-]{10,})?  # JSON web tokens
    | (?<=://)[^\s/:@]{1,80}:[^\s/@]{1,80}(?=@)              # a password in an address
    | -----BEGIN[ ](?:[A-Z]+[ ])*PRIVATE[ ]KEY-----[\s\S]*?(?:-----END[ ](?:[A-Z]+[ ])*PRIVATE[ ]KEY-----|\Z)
    | (?i:(?<=bearer[ ])[\w.~+/-]{16,}=*)
    """
#: One of these is in every text that the pattern can match; most texts have none.
_HINTS = ("k-", "gh", "github_pat_", "xox", "AKIA", "AIza", "eyJ", "://", "PRIVATE", "earer ", "EARER ")


@cache
def _keys() -> re.Pattern[str]:
    return re.compile(_KEYS, re.VERBOSE)


def mask_keys(text: str) -> str:
    return _keys().sub(MASK, text) if any(hint in text for hint in _HINTS) else text
