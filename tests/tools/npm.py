"""Packages from npm for tests and benchmarks, in the build folder; nothing of them is committed but the lock file."""

import shutil
import subprocess


def install(source, there, script, patience_s=300):
    """Those of source/package-lock.json into `there`, again only when that file changes; and beside them `script`, whose path
    is returned. RuntimeError says why that can't be."""
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    if missing:
        raise RuntimeError(f"{', '.join(missing)} not installed")
    lock = (source / "package-lock.json").read_bytes()
    done = there / "installed"
    if not done.exists() or done.read_bytes() != lock:
        there.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, there)
        try:
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=there, check=True,
                           capture_output=True, text=True, timeout=patience_s)
        except subprocess.SubprocessError as error:
            raise RuntimeError(f"npm ci failed: {(getattr(error, 'stderr', None) or str(error)).strip()[-200:]}") from error
        done.write_bytes(lock)
    shutil.copy(source / script, there)
    return there / script
