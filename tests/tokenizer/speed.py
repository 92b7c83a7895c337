#!/usr/bin/env python3
"""Tokens per second on one core: the C++ tokenizers beside the `tokenizers` package on one thread.

    tests/tokenizer/run.sh speed      # makes an environment with the packages, then runs this

Texts are Python's own library (prose in its docstrings, code) and the multilingual sentences of strings.py. The two
programs run one after the other, several rounds, and the best round of each counts. Time is processor time, so that
other work on the machine does not show.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import compare  # which also keeps `tokenizers` to one thread
import strings
import vocabularies


def library_texts(limit):
    folder = pathlib.Path(os.__file__).parent
    text = "".join(p.read_text(errors="replace") for p in sorted(folder.glob("*.py"))[:60])
    return [text[i:i + 4000] for i in range(0, min(len(text), limit), 4000)]


def multilingual_texts(count):
    source = strings.Strings(7)
    return [" ".join(source.random.choice(source.sentences) for _ in range(40)) for _ in range(count)]


def best_rate(run, rounds):
    best = 0.0
    for _ in range(rounds):
        start = time.process_time()
        tokens = run()
        best = max(best, tokens / (time.process_time() - start))
    return best


def measure(driver, case, texts, rounds):
    packed = compare.pack([t.encode() for t in texts])
    tokenizer = case.hugging_face
    ids = case.encode(texts)
    ours = {"encode": 0.0, "decode": 0.0, "stream": 0.0}
    theirs = {"encode": 0.0, "decode": 0.0}
    for _ in range(rounds):
        output = subprocess.run([driver, *case.driver, "speed"], input=packed, stdout=subprocess.PIPE, check=True).stdout
        for key, value in json.loads(output).items():
            if key in ours:
                ours[key] = max(ours[key], value)
        if tokenizer is not None:
            theirs["encode"] = max(theirs["encode"], best_rate(
                lambda: sum(len(e) for e in tokenizer.encode_batch_fast(texts)), 2))
            theirs["decode"] = max(theirs["decode"], best_rate(
                lambda: sum(map(len, ids)) + 0 * len(tokenizer.decode_batch(ids)), 2))
    return ours, theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="", help="only cases whose name begins so")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minimum", type=float, default=0.0, help="fail below this many tokens a second")
    arguments = parser.parse_args()
    corpora = {"library": library_texts(2_000_000), "multilingual": multilingual_texts(400)}
    wheels = vocabularies.download(arguments.work / "packages")
    slow = 0
    print(f"{'case':16} {'text':13} {'million tokens/s: encode (tokenizers)':>38} {'decode (tokenizers)':>20} {'stream':>7}")
    for prefix, build in vocabularies.builders(wheels, arguments.work).items():
        if not prefix.startswith(arguments.only.split("-")[0]):
            continue
        for case in (c for c in build() if c.name.startswith(arguments.only)):
            for name, texts in corpora.items():
                ours, theirs = measure(arguments.driver, case, texts, arguments.rounds)
                mega = {k: v / 1e6 for k, v in ours.items()}
                other = {k: v / 1e6 for k, v in theirs.items()}
                print(f"{case.name:16} {name:13} {mega['encode']:26.2f} ({other['encode']:9.2f}) {mega['decode']:8.1f} "
                      f"({other['decode']:9.2f}) {mega['stream']:7.1f}", flush=True)
                slow += min(ours.values()) < arguments.minimum
                slow += any(ours[k] < theirs[k] for k in theirs)
    if slow:
        print(f"{slow} measurements are below {arguments.minimum:g} tokens/s or below the tokenizers package")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
