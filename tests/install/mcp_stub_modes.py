"""The modes of `mcp_stub.py`, by what must come of them."""

REFUSED_ENTRIES = (
    *("negative-size", "size-as-text", "huge-size", "no-digest", "md5", "dot-dot", "encoded-dot-dot", "encoded-slash"),
    *("backslash", "absolute", "other-skill", "other-scheme", "other-host", "not-utf-8", "nul", "device", "colon"),
    *("git-hooks", "query", "one-file-on-some-systems", "file-and-folder", "twice", "no-skill-file", "dynamic"),
    *("no-resources", "resources-as-number", "10,000-resources", "20-MiB", "huge-frontmatter", "deep-frontmatter"),
    *("no-frontmatter", "other-name", "bad-name", "uri-dot-dot", "uri-of-no-skill", "uri-as-number"),
    *("lone-surrogate", "entry-is-text"),
)
REFUSED_CONTENT = (
    *("wrong-digest", "wrong-size", "other-frontmatter", "more-frontmatter", "changes", "other-content"),
    *("two-contents", "broken-blob", "dies-while-reading"),
)
#: With what is said of each.
FAILING_SERVERS = {
    "endless": "has no end",
    "same-cursor": "has no end",
    "list-is-text": "lists no skills",
    "no-extension": "declares no skills",
    "dies-at-once": "no licence",
    "result-is-text": "no result",
}
