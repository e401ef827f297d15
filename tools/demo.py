"""`./dev demo`: the main job end to end, on the example skills, in a project that is thrown away."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples" / "skills"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="skillyard-demo-") as name:
        folder = Path(name)
        project = folder / "project"
        shutil.copytree(EXAMPLES, project / ".claude" / "skills")
        (project / ".git").mkdir()
        env = {**os.environ, "HOME": str(folder / "home"), "SKILLYARD_HOME": str(folder / "skillyard")}
        for step in STEPS:
            print(f"\n$ skillyard {' '.join(step)}", flush=True)
            ended = subprocess.run([sys.executable, "-m", "skillyard", *step], cwd=project, env=env, check=False)
            if ended.returncode:
                raise SystemExit(f"the demo failed: exit code {ended.returncode}")


STEPS: list[list[str]] = [["list"]]

if __name__ == "__main__":
    main()
