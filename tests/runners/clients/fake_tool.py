"""A stand-in for a Python with a benchmark client in it; the asked output length says how it ends.

fake_tool.py -c CODE vllm                     the version
fake_tool.py -m ... --help[=all]              the options, all but --output-details
fake_tool.py -m ... --random-output-len N --result-dir DIR --result-filename FILE
    1 exit 0 and no file   2 half a file   3 a version of another shape   4 exit 0, every request failed
    5 a crash              6 a result once FILE.go is there                8 the sample's own result
"""

import itertools
import json
import os
import re
import sys
import time
from pathlib import Path

SAMPLE = Path(__file__).parents[2] / "data" / "clients" / "vllm_bench.json"
KNOWN = """--backend --base-url --endpoint --model --tokenizer --dataset-name --random-input-len --random-output-len
--random-range-ratio --random-prefix-len --num-prompts --num-warmups --seed --temperature --ignore-eos --request-rate
--max-concurrency --percentile-metrics --metric-percentiles --save-result --save-detailed --result-dir
--result-filename --disable-tqdm --served-model-name --tokenize-prompt --warmup-requests --output-file
"""


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(argv: list[str]) -> int:
    if argv[0] == "-c":
        say("version 0.32.0+cpu")
        return 0
    if re.match("--help", argv[-1]):
        say(KNOWN)
        return 0
    told = dict(itertools.pairwise(argv))
    way = int(told["--random-output-len"])
    target = Path(told["--result-dir"]) / told["--result-filename"]
    say("Serving Benchmark Result")
    result = json.loads(SAMPLE.read_text())
    text = json.dumps(result)
    if way == 1:
        return 0
    if way == 2:
        text = text[: len(text) // 2]
    if way == 3:
        text = json.dumps({"schema": 2, "results": [result]})
    if way == 4:
        count = len(result["ttfts"])
        none = {"ttfts": [0.0] * count, "itls": [[]] * count, "output_lens": [0] * count, "latencies": [0.0] * count}
        text = json.dumps({**result, **none, "errors": ["Bad Request"] * count, "completed": 0, "failed": count})
    if way == 5:
        sys.stderr.write("RuntimeError: the tool fell over\n")
        return 1
    if way == 6:
        (target.parent / "began").touch()
        while not (target.parent / "go").exists():
            time.sleep(0.1)
    target.write_text(text)
    return 0


if __name__ == "__main__":
    os.umask(0o22)
    sys.exit(main(sys.argv[1:]))
