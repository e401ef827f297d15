"""`./dev demo`: the main job end to end, on the example skills, in a project that is thrown away."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"

#: What is shown, why, and the exit code that it ends with.
WORKER = "task --lang zh worker_agent 查找技能 '执行 python bin/skill_manager.py search 周报' --key skill-search:周报"
STEPS = [
    ("Lay the project out as the seeds describe it.", "init", 0),
    ("Ten skills lie in .claude/skills. Which?", "list", 0),
    ("Find one, in English or in Chinese.", "search 周报", 0),
    ("Are they well written?", "validate .claude/skills", 0),
    ("A command skill: Markdown to HTML, in a sandbox.", "run --lang zh @markdown-converter README.md", 0),
    ("What it wrote is told with its size. One more, with typed numbers:", "run @csv-summary sales.csv", 0),
    ("A JSON skill (S3): a request on stdin, a response on stdout.", "run @log-analyzer analyze path=app.log", 0),
    ("A prompt skill runs nothing; it hands over its text.", "run --json @code-review", 0),
    ("A missing param is a question, exit code 4.", "run --lang zh @word-count", 4),
    ("A name that is almost right.", "run @markdwon-converter README.md", 1),
    ("A Task to the skills agent, as a Kernel sends it.", "task --lang zh skills 统计 '执行 @word-count README.md'", 0),
    ("A Task to the worker, with a key…", WORKER, 0),
    ("…and the same again within five seconds: it ran once.", WORKER, 0),
    ("What would a run do, and what may it touch?", "run --dry-run @csv-summary sales.csv", 0),
    ("A new skill, and every probe that its kind must pass.", "new my-report --kind json --actions report", 0),
    ("", "check @my-report", 0),
    ("What ran?", "runs", 0),
]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="skillyard-demo-") as name:
        folder = Path(name)
        project = folder / "project"
        shutil.copytree(EXAMPLES / "skills", project / ".claude" / "skills")
        shutil.copytree(EXAMPLES / "data", project, dirs_exist_ok=True)
        (project / ".git").mkdir()
        env = {**os.environ, "HOME": str(folder / "home"), "SKILLYARD_HOME": str(folder / "skillyard")}
        for why, command, expected in STEPS:
            heading = f"# {why}\n" if why else ""
            print(f"\n{heading}$ skillyard {command}", flush=True)
            ended = subprocess.run(
                [sys.executable, "-m", "skillyard", *shlex.split(command)], cwd=project, env=env, check=False
            )
            if ended.returncode != expected:
                raise SystemExit(f"the demo failed: exit code {ended.returncode}, not {expected}")
    print("\nThe demo is done; nothing of it is left. Next: README.md and docs/tutorial/.")


if __name__ == "__main__":
    main()
