"""`./dev attack` itself: it sees an escape where nothing guards, and none with our sandbox."""

import json
import os
import sys
from pathlib import Path

import pytest
from tools.attack import __main__ as attack
from tools.attack import inside, product
from tools.attack.payloads import GIVEN
from tools.attack.report import Cell, Row, Verdict, as_markdown, as_table
from tools.attack.who import OURS

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux only")
USER = "root" if os.getuid() == 0 else "user"


@linux_only
def test_a_payload_gets_out_where_nothing_guards_and_not_out_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--json", "--only", "read_ssh_key", "--who", "full", "--who", "none", "--who", "nothing"]

    assert attack.main(words) == 0

    (row,) = json.loads(capsys.readouterr().out)
    found = {name: cell["verdict"] for name, cell in row["cells"].items()}
    assert (found[f"full/{USER}"], found[f"none/{USER}"], found[f"nothing/{USER}"]) == ("blocked", "refused", "ESCAPED")


def test_an_escape_from_ours_fails_and_one_from_a_peer_does_not() -> None:
    escaped, broken = Cell(Verdict.ESCAPED, "read it"), Cell(Verdict.BROKEN, "did not start")
    peers = Row("files", "a", {"full/root": Cell(Verdict.BLOCKED), "srt/root": escaped})

    assert attack._failures([peers]) == []
    assert attack._failures([Row("files", "a", {"full/root": escaped})]) == ["a full/root"]
    assert attack._failures([Row("files", "a", {"full/user": broken})]) == ["a full/user"]


def test_the_table_is_written_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{attack.BEGIN}\nold\n{attack.END}\nafter\n")
    cells = {f"{name}/{user}": Cell(Verdict.BLOCKED) for name in OURS for user in ("root", "user")}
    rows = [
        Row("files", "read_it", {**cells, "srt/root": Cell(Verdict.ESCAPED), "nothing/root": Cell(Verdict.ESCAPED)}),
        Row("git", "run_it", {"full/root": Cell(Verdict.ESCAPED)}),
    ]

    attack.record(as_markdown(rows, [*cells, "srt/root", "nothing/root"], "About."), page)

    text = page.read_text()
    assert text.startswith(f"before\n{attack.BEGIN}\nAbout.\n")
    assert text.endswith(f"{attack.END}\nafter\n")
    assert "| files (1) | 0 | 0 | 0 | 0 |" in text
    assert "| read it |  |  |  | root |" in text
    assert "| git (1) | 1 / – |" in text
    assert "OUT" in as_table(rows, ["full/root", "srt/root"])


def test_every_attack_has_a_name_of_its_own_and_every_payload_a_function() -> None:
    from tools.attack import payloads

    names = [(payload.layer, payload.name) for payload in inside.PAYLOADS]
    assert len(names) == len({*names})
    assert len({found.name for found in product.PRODUCTS}) == len(product.PRODUCTS)
    assert [name for _, name in names if not callable(getattr(payloads, name, None))] == []
    assert GIVEN == {}


def test_whatever_attempts_py_tries_is_a_payload_too() -> None:
    """The escapes that the sandbox's own tests know, by another name or the same."""
    other = {
        "connect_to_a_path_socket": "connect_to_a_socket_outside",
        "listen_on_tcp": "listen_for_the_outside",
        "open_a_raw_or_netlink_socket": "odd_socket_families",
        "signal_the_runtime": "stop_the_supervisor",
        "trace_the_runtime": "trace_the_supervisor",
        "trace_the_parent": "trace_the_supervisor",
        "read_the_memory_of_the_parent": "read_the_supervisor",
        "become_root": "become_somebody_else",
        "syscall": "call_what_should_not_be_there",
        "refused_calls": "call_what_should_not_be_there",
        "signal_the_supervisor": "stop_the_supervisor",
        "queue_a_signal_for_the_supervisor": "stop_the_supervisor",
        "stop_the_supervisors_thread": "stop_the_supervisor",
        "hold_the_supervisor": "stop_the_supervisor",
        "idle_the_supervisor": "schedule_the_supervisor",
        "idle_the_supervisor_by_attributes": "schedule_the_supervisor",
        "set_the_supervisors_parameters": "schedule_the_supervisor",
        "renice_the_supervisor": "schedule_the_supervisor",
        "renice_the_group_of_the_supervisor": "schedule_the_supervisor",
        "renice_everybody_of_a_user": "schedule_a_process_outside",
        "lower_the_io_priority_of_the_supervisor": "schedule_the_supervisor",
        "lower_the_io_priority_of_a_user": "schedule_a_process_outside",
        "take_a_realtime_policy": "schedule_the_supervisor",
        "raise_our_own_priority": "schedule_the_supervisor",
        "pin_the_supervisor_to_one_cpu": "pin_the_supervisor",
        "pin_the_supervisor_behind_high_bits": "pin_the_supervisor",
        "limit_the_runtime": "limit_the_supervisor",
        "read_the_limits_of_the_supervisor": "limit_the_supervisor",
        "open_the_supervisors_proc_files_for_writing": "offer_the_supervisor_to_the_oom_killer",
        "read_words_of_the_runtime_from_the_supervisor": "read_the_supervisor",
        "use_a_descriptor_that_was_left_open": "read_an_open_file_of_others",
        **dict.fromkeys(
            (f"set_bits_{how}" for how in ("by_chmod", "by_fchmodat", "by_fchmodat2", "behind_high_bits")),
            "setuid_by_chmod",
        ),
        "set_bits_by_fchmod": "setuid_by_descriptor",
        **dict.fromkeys(
            (f"set_bits_by_{how}" for how in ("open", "creat", "an_unnamed_file", "openat2", "mknod")),
            "setuid_at_creation",
        ),
        "set_bits_on_a_folder": "setgid_folder",
        "set_bits_on_a_folder_by_chmod": "setgid_folder",
        "send_from_a_pair_to_a_path": "send_by_a_pair_to_a_socket",
        "send_from_a_raw_pair_to_a_path": "send_by_a_pair_to_a_socket",
        "send_from_a_pair_to_an_abstract_name": "send_by_a_pair_to_a_socket",
        "reach_shared_memory_outside": "read_shared_memory",
        "reach_a_message_queue_outside": "send_to_a_message_queue",
        "reach_a_semaphore_outside": "change_a_semaphore",
        "reach_a_posix_queue_outside": "send_to_a_posix_queue",
    }
    helpers = {"main", "address", "_kept", "_fresh"}
    text = (Path(__file__).parent / "sandbox/attempts.py").read_text("utf-8")
    tried = {line.split("(")[0].removeprefix("def ") for line in text.splitlines() if line.startswith("def ")}
    known = {payload.name for payload in inside.PAYLOADS}

    assert {other.get(name, name) for name in tried - helpers} <= known
