"""What the numbers were measured on, and how busy the rest of the machine was."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TICKS = os.sysconf("SC_CLK_TCK")


def busy_seconds():
    """CPU seconds that everything on the machine has used since it started."""
    user, nice, system, _, _, irq, soft = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + soft) / TICKS


def process_seconds(pid):
    """CPU seconds that one process and its living children have used, all threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:  # kernels need not tell
        children = []
    return (int(fields[11]) + int(fields[12])) / TICKS + sum(map(process_seconds, children))


def cpu_model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.strip()


def commit():
    """A '+' marks changes beyond it. Sources that scripts/gpu has copied say in a file which one they are."""
    copied = ROOT / "COMMIT"
    if copied.exists():
        return copied.read_text().strip()
    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def describe():
    """The processor, the cores this process may use, and the commit."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "commit": commit(),
    }
