"""Where packages come from: the user's own settings of pip and uv, handed into the sandbox one by one.

People behind a mirror need theirs. Only variables that say where and how to fetch are passed, and only the files that
these or the usual places name can be read.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from skillyard.core.child_process import absolute_entries

_SHARED = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
_PIP = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CONFIG_FILE")
_PIP_MORE = ("PIP_TRUSTED_HOST", "PIP_PROXY", "PIP_DEFAULT_TIMEOUT", "PIP_TIMEOUT", "PIP_RETRIES", "PIP_PRE")
_UV = (
    *("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX"),
    *("UV_CONFIG_FILE", "UV_OFFLINE"),
)
_UV_MORE = (
    *("UV_INDEX_STRATEGY", "UV_INSECURE_HOST", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_HTTP_TIMEOUT"),
    *("UV_PRERELEASE", "UV_KEYRING_PROVIDER"),
)
#: Variables whose value is a file or a folder.
_FILES = (
    *("PIP_CERT", "PIP_CLIENT_CERT", "PIP_CONFIG_FILE", "UV_CONFIG_FILE"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "SSL_CLIENT_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
#: Variables and settings of pip whose value may be a local folder among addresses.
_PLACES = ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_INDEX_URL", "UV_INDEX")
_SETTINGS = ("find-links", "index-url", "extra-index-url", "cert", "client-cert")


class Indexes(NamedTuple):
    variables: Mapping[str, str]
    #: What the installer may read, each without a symlink on the way.
    files: tuple[Path, ...]
    #: The user's uv; empty where there is none, or where only pip knows where packages come from.
    uv: str


def find_indexes(env: Mapping[str, str] = os.environ) -> Indexes:
    variables = {name: env[name] for name in (*_SHARED, *_PIP, *_PIP_MORE, *_UV, *_UV_MORE) if env.get(name)}
    variables |= {name: value for name, value in env.items() if name.startswith("UV_INDEX_")}
    for name in _FILES:
        if env.get(name):
            variables[name] = os.path.realpath(env[name])
    pip_files, uv_file = _pip_files(env), _uv_file(env)
    if pip_files.own:
        variables["PIP_CONFIG_FILE"] = str(pip_files.own)
    variables |= {"UV_CONFIG_FILE": str(uv_file)} if uv_file else {"UV_NO_CONFIG": "1"}
    knows_pip = bool(pip_files.all) or any(env.get(name) for name in _PIP if name != "PIP_CONFIG_FILE")
    knows_uv = uv_file is not None or any(env.get(name) for name in _UV)
    return Indexes(
        variables=variables,
        files=tuple(dict.fromkeys(_readable(variables, pip_files.all, uv_file))),
        uv=_find_uv(env) if knows_uv or not knows_pip else "",
    )


def _find_uv(env: Mapping[str, str]) -> str:
    """The program itself by its real path; a script that stands for it (pyenv, asdf) cannot work in there."""
    found = shutil.which("uv", path=absolute_entries(env))
    if not found:
        return ""
    with Path(found).open("rb") as file:
        return "" if file.read(2) == b"#!" else os.path.realpath(found)


class _PipFiles(NamedTuple):
    #: The user's own, by its real path.
    own: Path | None
    all: tuple[Path, ...]


def _pip_files(env: Mapping[str, str]) -> _PipFiles:
    """As pip looks for them; a file named by the user stands in for the one in the home folder."""
    named = env.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return _PipFiles(Path(os.devnull), ())
    home = Path(env.get("HOME") or "/")
    usual = (_config_home(env) / "pip" / "pip.conf", home / ".pip" / "pip.conf")
    own = next((path.resolve() for path in ((Path(named),) if named else usual) if path.is_file()), None)
    system = [path for path in (Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf")) if path.is_file()]
    return _PipFiles(own, (*system, *((own,) if own else ())))


def _uv_file(env: Mapping[str, str]) -> Path | None:
    named = env.get("UV_CONFIG_FILE")
    usual = (_config_home(env) / "uv" / "uv.toml", Path("/etc/uv/uv.toml"))
    return next((path.resolve() for path in ((Path(named),) if named else usual) if path.is_file()), None)


def _config_home(env: Mapping[str, str]) -> Path:
    return Path(env.get("XDG_CONFIG_HOME") or Path(env.get("HOME") or "/", ".config"))


def _readable(variables: Mapping[str, str], pip_files: tuple[Path, ...], uv_file: Path | None) -> Iterator[Path]:
    yield from (path.resolve() for path in pip_files)
    named = [variables[name] for name in _FILES if name in variables]
    if uv_file:
        yield uv_file
        named += _links_of(uv_file)
    for name in _PLACES:
        named += variables.get(name, "").replace(",", " ").split()
    for file in pip_files:
        named += _settings_of(file)
    yield from (place for text in named if (place := _local(text)))


def _settings_of(file: Path) -> list[str]:
    """What a pip.conf names; one that pip cannot read is for pip to complain about."""
    import configparser  # noqa: PLC0415  (only a build reads it)

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(file.read_text("utf-8"))
    except (configparser.Error, UnicodeDecodeError, OSError):
        return []
    values = [parser[section].get(name) or "" for section in parser.sections() for name in _SETTINGS]
    return [word for value in values for word in value.split()]


def _links_of(file: Path) -> list[str]:
    """The folders of wheels that a uv.toml names."""
    import tomllib  # noqa: PLC0415  (only a build reads it)

    try:
        fields = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError):
        return []
    tables = (fields, fields.get("pip", {}))
    return [str(link) for table in tables if isinstance(table, dict) for link in table.get("find-links", [])]


def _local(text: str) -> Path | None:
    """A folder or file of this machine, if it is one."""
    path = Path(unquote(urlsplit(text).path) if text.startswith("file:") else text)
    if not path.is_absolute() or not path.exists():
        return None
    real = path.resolve()
    return None if real in {Path("/"), Path("/dev/null")} else real
