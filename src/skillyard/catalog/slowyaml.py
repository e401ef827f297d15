"""The YAML parser for a PyYAML that was built without libyaml: the same answers, slower."""

import re

from yaml.composer import Composer
from yaml.parser import Parser as EventParser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


class Parser(Reader, Scanner, EventParser, Composer, BaseResolver):
    """Refuses escaped half characters, as libyaml does: they would break whoever writes them out."""

    def __init__(self, stream: str) -> None:
        half = _HALF_CHARACTER.search(stream)
        if half:
            raise ReaderError("<block>", half.start(), 0xD800, "unicode", "half a character is escaped")
        Reader.__init__(self, stream)
        Scanner.__init__(self)
        EventParser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
