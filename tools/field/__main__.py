"""Run strangers' skills plainly and by Skillyard, and print by cause where they differ. `./dev field FOLDER…`.

Each FOLDER is a clone of a skill repository. Every SKILL.md is read; every program is called as its author shows it,
and with --help. A case counts where two plain runs succeed and agree. Strangers' programs never run on the bare
machine.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.manifest import read_skill
from tools.field.cases import Case, find_cases, skill_files
from tools.field.runs import Ended, Ground, obey, run_ours, run_plainly, same_words

SAME, HINTED, TOLD, WRONG, FAILED = (
    "same at first try",
    "same after one hint",
    "differs, and says so",
    "silently wrong",
    "failed",
)
SAME_FAILURE, OTHER_FAILURE, UNTRIED = "fails as plainly", "fails, not as plainly", "cannot be tried"
COUNTED = (SAME, HINTED, TOLD, WRONG, FAILED)


class Verdict(NamedTuple):
    case: Case
    what: str
    cause: str = ""


def judge(case: Case, python: Path, home: Path) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="field-") as folder:
        base = Path(folder).resolve()
        try:
            first = run_plainly(Ground(base / "a", case), python)
        except OSError as error:
            return Verdict(case, UNTRIED, str(error.strerror))
        from_skill = "No module named" in first.cause
        if from_skill:
            first = run_plainly(Ground(base / "m", case), python, from_skill=True)
        if not first.ok and (first.cause == "too slow" or "No module named" in first.cause):
            return Verdict(case, UNTRIED, first.cause)
        second = run_plainly(Ground(base / "b", case), python, from_skill=from_skill)
        ground = Ground(base / "c", case)
        if not first.ok:
            return _judge_failure(case, first, second, run_ours(ground, home))
        ours, hinted = run_ours(ground, home), False
        if not ours.ok and ours.hints:
            hinted = obey(ground, home, ours.hints[0])
            ours = run_ours(ground, home)
        if not ours.ok:
            return Verdict(case, FAILED, ours.cause)
        difference = ""
        if first.said == second.said and not same_words(first.said, ours.said):
            difference = f"said {ours.said[:80]!r} instead of {first.said[:80]!r}"
        elif first.files == second.files and first.files.items() - ours.files.items():
            difference = f"files {sorted(name for name, _ in first.files.items() - ours.files.items())[:3]}"
        if difference:
            return Verdict(case, TOLD if ours.told else WRONG, difference)
        return Verdict(case, HINTED if hinted else SAME)


def _judge_failure(case: Case, first: Ended, second: Ended, ours: Ended) -> Verdict:
    """Tell whether a program that fails plainly fails the same way with us, with everything that it said."""
    if first.cause != second.cause or first.said != second.said:
        return Verdict(case, UNTRIED, "fails differently each time")
    if ours.ok or ours.error not in {"RuntimeFailed", "InvalidArgs"}:
        return Verdict(case, OTHER_FAILURE, ours.cause or "success")
    if not same_words(first.said, ours.said):
        return Verdict(case, OTHER_FAILURE, f"said {ours.said[:80]!r} instead of {first.said[:80]!r}")
    return Verdict(case, SAME_FAILURE)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev field", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, help="clones of skill repositories")
    parser.add_argument(
        "--most", type=int, default=40, help="cases of one repository, drawn at random (default 40; 0: all)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="the plain runs' interpreter, with the usual packages"
    )
    parser.add_argument("--match", default="", help="only cases whose label contains this")
    parser.add_argument("--log", type=Path, help="write a JSON line for each case here")
    args = parser.parse_args()
    cases: list[Case] = []
    for clone in args.folders:
        readings = [read_skill(file) for file in skill_files(clone.resolve())]
        unread = sum(reading.skill is None for reading in readings)
        found = [case for case in find_cases(clone.resolve()) if args.match in case.label]
        if args.most and len(found) > args.most:
            found = random.Random(args.seed).sample(found, args.most)
        print(f"{clone.name}: {len(readings)} skills, {unread} unreadable, {len(found)} cases", file=sys.stderr)
        cases += found
    verdicts = run_all(cases, args)
    print_report(verdicts)
    return 0


def run_all(cases: list[Case], args: argparse.Namespace) -> list[Verdict]:
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="field-home-") as home, ThreadPoolExecutor(args.jobs) as pool:
        log = args.log.open("w") if args.log else None
        for number, verdict in enumerate(pool.map(lambda case: judge(case, args.python, Path(home)), cases), 1):
            verdicts.append(verdict)
            if log:
                log.write(
                    json.dumps(
                        {"case": verdict.case.label, "what": verdict.what, "cause": verdict.cause}, ensure_ascii=False
                    )
                    + "\n"
                )
                log.flush()
            if number % 25 == 0:
                print(f"{number} of {len(cases)}", file=sys.stderr)
        if log:
            log.close()
    return verdicts


def print_report(verdicts: list[Verdict]) -> None:
    counts = Counter(verdict.what for verdict in verdicts)
    counted = sum(counts[what] for what in COUNTED)
    print(f"\n{len(verdicts)} cases, {counted} that work plainly\n")
    for what in (*COUNTED, SAME_FAILURE, OTHER_FAILURE, UNTRIED):
        share = f"{counts[what] / counted:7.1%}" if counted and what in COUNTED else ""
        print(f"{what:24} {counts[what]:6} {share}")
    for what in (WRONG, TOLD, FAILED, OTHER_FAILURE):
        causes = Counter(verdict.cause for verdict in verdicts if verdict.what == what)
        if causes:
            print(f"\n{what}")
        for cause, number in causes.most_common(30):
            example = next(
                verdict.case.label for verdict in verdicts if verdict.what == what and verdict.cause == cause
            )
            print(f"{number:5}  {cause[:150]}\n       {example[:150]}")


if __name__ == "__main__":
    sys.exit(main())
