"""A container engine for tests: Docker's commands as far as container.sh uses them, over plain processes.

A container is a folder under $FAKE_ENGINE: id, name, label, running, code, out, err. It runs in a session of its own,
as with a daemon, so that no signal to the job reaches it. `down` in that folder: the daemon does not answer.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HOME = Path(os.environ.get("FAKE_ENGINE", "/nowhere"))


def fail(code: int, text: str) -> int:
    sys.stderr.write(f"docker: Error response from daemon: {text}\n")
    return code


def names(home: Path) -> list[str]:
    return [path.read_text() for path in home.glob("*/name") if not path.parent.name.startswith(".")]


def find(key: str) -> Path:
    for folder in HOME.glob("*/"):
        if key == folder.name:
            return folder
    sys.exit(f"Error response from daemon: No such container: {key}")


def run(argv: list[str]) -> int:
    options = [a for a in argv if a.startswith("--")]
    given = dict(o[2:].partition("=")[::2] for o in options)
    labels = " ".join(o.partition("=")[2] for o in options if o.startswith("--label="))
    at = next(i for i, a in enumerate(argv) if a.startswith("--entrypoint"))
    image, *rest = argv[at + 1 :]
    if given["name"] in names(HOME):
        return fail(125, f'Conflict. The container name "/{given["name"]}" is already in use by container "0123".')
    name = os.urandom(32).hex()
    folder = HOME / name
    folder.mkdir()
    for key, value in (("name", given["name"]), ("label", labels), ("image", image), ("running", "true")):
        (folder / key).write_text(value)
    Path(given["cidfile"]).write_text(name)
    env = dict(line.split("=", 1) for line in Path(given["env-file"]).read_text().splitlines())
    if not Path(given["entrypoint"]).exists():
        (folder / "running").write_text("false")
        return fail(127, "failed to create task: exec: no such file")
    if os.fork() == 0:
        os.setsid()
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err, open(os.devnull, "r+b") as null:
            for fd in (0, 1, 2):
                os.dup2(null.fileno(), fd)
            child = subprocess.Popen([given["entrypoint"], *rest], env=env, stdout=out, stderr=err)
            (folder / "pid").write_text(str(child.pid))
            code = child.wait()
        (folder / "code").write_text(str(code if code >= 0 else 128 - code))
        (folder / "running").write_text("false")
        os._exit(0)
    sys.stdout.write(name + "\n")
    return 0


def running(folder: Path) -> bool:
    return folder.exists() and (folder / "running").read_text() == "true"


def send(folder: Path, number: int) -> None:
    while not (folder / "pid").exists():
        time.sleep(0.02)
    if running(folder):
        os.kill(int((folder / "pid").read_text()), number)


def logs(folder: Path, follow: bool) -> int:
    with (folder / "out").open("rb") as out, (folder / "err").open("rb") as err:
        while True:
            last = not follow or not running(folder)
            for source, target in ((out, sys.stdout.buffer), (err, sys.stderr.buffer)):
                target.write(source.read())
                target.flush()
            if last:
                return 0
            time.sleep(0.05)


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a Go program hears it, whoever started it deaf
    verb, *rest = argv
    if (HOME / "down").exists():
        return fail(1, "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.")
    if verb == "run":
        return run(rest)
    if verb == "image":
        sys.stdout.write("sha256:ab an/image@sha256:cd\n")
        return 0
    if verb == "info":
        return fail(1, "template: can't evaluate field Version")
    if verb == "ps":
        wanted = rest[rest.index("--filter") + 1].removeprefix("label=")
        sys.stdout.writelines(f.name + "\n" for f in HOME.glob("*/") if wanted in (f / "label").read_text().split())
        return 0
    folder = find(rest[-1])
    if verb == "logs":
        return logs(folder, "-f" in rest)
    if verb == "inspect":
        if "OOMKilled" in rest[1] and (HOME / "nerdctl").exists():  # it has no such field (nerdctl 2, dockercompat.go)
            return fail(1, 'template: :1:8: executing "" at <.State.OOMKilled>: map has no entry for key "OOMKilled"')
        asked = {"{{.State.Running}}": "running", "{{.State.ExitCode}}": "code"}.get(rest[1])
        sys.stdout.write(((folder / asked).read_text() if asked else str((folder / "oom").exists()).lower()) + "\n")
    elif verb == "wait":
        while running(folder):
            time.sleep(0.05)
    elif verb in ("stop", "kill", "rm"):
        if verb == "stop":
            send(folder, signal.SIGTERM)
            deadline = time.monotonic() + int(rest[1])
            while running(folder) and time.monotonic() < deadline:
                time.sleep(0.05)
        if running(folder):
            send(folder, signal.SIGKILL)
        while running(folder):
            time.sleep(0.02)
        if verb == "rm":
            subprocess.run(["rm", "-rf", str(folder.rename(HOME / f".{folder.name}"))], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
