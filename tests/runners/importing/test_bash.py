"""The reader of launch scripts expands words exactly as Bash does (Bash itself is the judge here)."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runners.importing.launches import read_script

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="no bash on this machine to compare with")

# A stand-in for the engine: prints its words and its environment, NUL separated.
STUB = """#!/bin/sh
printf '%s\\0' BEGIN "$@" END >> "$OUT"
"""


def bash_argv(script: str, folder: Path) -> list[list[str]]:
    """Words that the engine's stand-in receives when Bash runs the script."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("vllm", "python3", "sglang"):
        (tools / name).write_text(STUB)
        (tools / name).chmod(0o755)
    out = folder / "out"
    out.write_bytes(b"")
    assert BASH is not None
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "OUT": str(out), "LC_ALL": "C.UTF-8"}
    subprocess.run([BASH, "-c", script], env=env, cwd=folder, capture_output=True, timeout=20, check=False)
    words = out.read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]
    calls: list[list[str]] = []
    for word in words:
        if word == "BEGIN":
            calls.append([])
        elif word != "END":
            calls[-1].append(word)
    return calls


SCRIPTS = {
    "quotes": """vllm serve "a b" 'c "d"' e\\ f "g\\"h" "i\\$j" $'k\\tl' m"n"'o' "" '' """,
    "continuations": "vllm serve /m \\\n  --a 1 \\\n\t--b=2 \\\n --c\n",
    "comment after a backslash ends the command": "vllm serve /m --a 1 \\\n  # --b 2 \\\n  --c 3\n",
    "backslash blank hash": "vllm serve /m --a \\ # long\n",
    "defaults": 'A=1; vllm serve ${A:-x} ${B:-y z} "${B:-y z}" ${C-"q r"} ${A:+set} ${B:+unset} "${B:-}" ',
    "splitting": 'E="--x 1  --y 2"; vllm serve $E "$E" a$E"b"',
    "arrays": 'A=(--x "1 2"); A+=(--z 3); vllm serve "${A[@]}" ${A[@]} "${#A[@]}" "${A[1]}" "n${A[*]}m"',
    "empty array": 'A=(); vllm serve "${A[@]}" x ${A[@]}',
    "arithmetic": "N=2; vllm serve $((8 * N)) $((N+1)) $(( (N + 2) * 3 / 2 ))",
    "cuts": "P=/data/models/X.tar.gz; vllm serve ${P##*/} ${P%/*} ${P%%.*} ${P#*/} ${P/data/nfs} ${P//a/b} ${#P}",
    "case": "P=abC; vllm serve ${P^^} ${P,,} ${P^} ${P:1} ${P:0:2}",
    "braces": "vllm serve a{1..3}b {x,y}z 'q{1,2}' \"{1..2}\"",
    "functions": 'go() { local r=$1; shift; vllm serve --r "$r" "$@" $#; }; go 1 "a b" c; go 2',
    "loops": 'for i in 0 1; do vllm serve --rank $i; done; for h in {a,b}; do vllm serve "$h"; done',
    "seq": "for i in $(seq 0 2); do vllm serve $i; done",
    "if": 'R=1; if [ "$R" = 0 ]; then vllm serve a; elif [[ $R == 1 ]]; then vllm serve b; else vllm serve c; fi',
    "numbers": "R=3; if [ $R -ge 2 ] && [ $R -lt 4 ]; then vllm serve in; fi; [ $R -eq 9 ] && vllm serve no",
    "case word": 'M=prefill; case "$M" in decode) vllm serve d;; pre*|mix) vllm serve p;; *) vllm serve o;; esac',
    "heredoc": 'N=4; bash <<EOF\nN=5\nvllm serve --n $N "\\$N"\nEOF\n',
    "quoted heredoc": "N=4; bash <<'EOF'\nN=5\nvllm serve --n $N\nEOF\n",
    "bash -c": "export N=4; bash -c 'vllm serve --n $N \"$0\" $1' zero one",
    "nested quotes": """vllm serve --json '{"a": "b c", "d": [1, 2]}' --q "it's" --r 'say "x"'""",
    "semicolons and pipes": "vllm serve 1 | cat; vllm serve 2 && vllm serve 3 || vllm serve 4; (vllm serve 5) & wait",
    "redirects": "vllm serve x > /dev/null 2>&1; vllm serve y &> /dev/null; vllm serve z 2>/dev/null < /dev/null",
    "wrappers": "env A=1 nice -n 1 vllm serve x; nohup vllm serve y; exec vllm serve z",
    "append": "A=x; A+=y; export B=$A; B+=z; vllm serve $A $B",
    "several on a line": "A=1 B=$A; vllm serve $A $B; C=1 D=2 vllm serve $A",
    "hash inside a word": "vllm serve a#b '#c' d # e",
    "unset": "A=1; unset A; vllm serve ${A:-gone}",
    "subshell keeps its variables": "A=1; (A=2; vllm serve $A); vllm serve $A; { A=3; }; vllm serve $A",
    "and list of a known test": 'D=1; [ -n "$D" ] && F=--debug; [ -z "$D" ] || G=--g; vllm serve $F $G',
    "chinese": 'M=/数据/模型; vllm serve $M "名 字"',
    "eval": 'CMD=\'vllm serve --a "b c"\'; CMD="$CMD --d"; eval $CMD\neval "$CMD"\n$CMD',
    "arithmetic tests": "R=1; if (( R == 0 )); then vllm serve a; else vllm serve b; fi; (( R > 0 )) && vllm serve c",
    "counted loop": "for ((i=0; i<3; i++)); do vllm serve $i; done",
    "python": 'python3 -u -m sglang.launch_server --model-path "/m"',
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_words_are_those_that_bash_gives(name: str, tmp_path: Path) -> None:
    script = SCRIPTS[name]
    expected = bash_argv(script, tmp_path)
    assert expected, "the comparison would prove nothing"
    found = [launch.argv[1:] for launch in read_script(script).launches]
    assert found == expected


WORD = st.text(alphabet="ab1 -=/.,:{}[]'\"\\$#~*?!@%^&|;<>()\t", max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(WORD, min_size=1, max_size=5))
@example(["a\\", "'", '"'])
def test_words_quoted_by_shlex_come_back(words: list[str]) -> None:
    script = "vllm serve " + shlex.join(words)
    assert [launch.argv[2:] for launch in read_script(script).launches] == [words]


def double_quoted(text: str) -> str:
    return '"' + "".join("\\" + char if char in '$`"\\' else char for char in text) + '"'


@settings(max_examples=60, deadline=None)
@given(st.lists(WORD, min_size=1, max_size=5))
def test_double_quoted_words_come_back(words: list[str]) -> None:
    script = "vllm serve " + " ".join(map(double_quoted, words))
    assert [launch.argv[2:] for launch in read_script(script).launches] == [words]


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="abv \n\t'\"\\$(){}[]#;|&<>=`!*?@-01EOF", max_size=120))
@example("vllm serve ${A:-${B:-${C}}}")
@example("cat <<EOF")
@example("if then fi done esac ;; } )")
@example("$((1/0)) vllm serve")
def test_any_text_is_read_without_an_exception(text: str) -> None:
    read_script(text)
    read_script("vllm serve " + text)


HOSTILE = {
    "brackets": "(" * 20_000,
    "substitutions": "vllm serve " + '"$(' * 20_000,
    "bangs": "! " * 20_000 + "vllm serve",
    "defaults": "vllm serve " + "${A:-" * 5_000,
    "ifs": "if true; then " * 20_000,
    "questions": "if [ -f x ]; then A=1; fi\n" * 40 + "vllm serve $A",
    "doubling": "A=xxxxxxxxxx\n" + "A=$A$A\n" * 40 + "vllm serve $A",
    "arrays": "A=(a b c d)\n" + 'A+=("${A[@]}")\n' * 40 + 'vllm serve "${A[@]}"',
    "recursion": "f() { f; f; }; f; vllm serve",
    "braces": "vllm serve " + "{a,b}" * 30,
    "cases": "case $x in " * 20_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_scripts_end_soon(name: str) -> None:
    begun = time.process_time()
    read_script(HOSTILE[name])
    assert time.process_time() - begun < 20
