"""The README's Python runs as it stands there.

Catches: an example that names what the library does not have, or whose parity check is red.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_first_snippet_runs_as_written():
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert found, "the README shows how to use the library"
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # more of them cost minutes where the cores are busy
    run = subprocess.run([sys.executable, "-c", found[1]], cwd=ROOT, env=one_thread, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert any(re.search(r"spot \d+ passes for \d+ steps", line) for line in lines)
    assert lines[-1] == "1.0", "verify_parity finds all ids identical"
