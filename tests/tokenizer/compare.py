#!/usr/bin/env python3
"""Compares the C++ tokenizers, byte for byte, with the Python packages `tokenizers`, `sentencepiece` and `tiktoken`.

    tests/tokenizer/run.sh            # makes an environment with the packages, then runs this

Each vocabulary encodes the same strings in both, decodes the ids of each string and random ids in both, and decodes
the former once more with the incremental detokenizer. Any difference is printed and the exit code is 1.
"""

import argparse
import os
import pathlib
import random
import struct
import subprocess
import sys

# Idle threads of the package's pool yield in a loop, which starves it on a busy machine.
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import strings  # noqa: E402
import vocabularies  # noqa: E402


def pack(items):
    return b"".join(struct.pack("<I", len(i)) + (i if isinstance(i, bytes) else struct.pack(f"<{len(i)}i", *i))
                    for i in items)


def unpack(data, ids):
    out, position = [], 0
    while position < len(data):
        count, = struct.unpack_from("<I", data, position)
        position += 4
        size = count * 4 if ids else count
        part = data[position:position + size]
        out.append(list(struct.unpack(f"<{count}i", part)) if ids else part.decode())
        position += size
    return out


def drive(driver, case, mode, items):
    result = subprocess.run([driver, *case.driver, mode], input=pack(items), stdout=subprocess.PIPE, check=False)
    if result.returncode != 0:
        raise SystemExit(f"{case.name}: tokenizer_driver {mode} failed with exit code {result.returncode}")
    out = unpack(result.stdout, mode == "encode")
    if len(out) != len(items):
        raise SystemExit(f"{case.name}: {mode} answered {len(out)} of {len(items)}")
    return out


def differences(case, what, inputs, expected, found, show):
    count = 0
    for given, want, got in zip(inputs, expected, found, strict=True):
        if want == got:
            continue
        count += 1
        if count <= show:
            print(f"{case.name}: {what} differs\n  input    {given!r:.600}\n  expected {want!r:.600}\n  found    {got!r:.600}")
    return count


def compare(driver, case, texts, seed, show):
    expected = case.encode(texts)
    found = drive(driver, case, "encode", [t.encode() for t in texts])
    wrong = {"encode": differences(case, "encode", texts, expected, found, show)}
    decoded = case.decode(expected)
    wrong["decode"] = differences(case, "decode", expected, decoded, drive(driver, case, "decode", expected), show)
    wrong["stream"] = differences(case, "stream", expected, decoded, drive(driver, case, "stream", expected), show)
    rng = random.Random(seed)
    ids = [[rng.randrange(case.vocab_size) for _ in range(rng.randint(0, 12))] for _ in range(len(texts) // 4)]
    wrong["random ids"] = differences(case, "decode of random ids", ids, case.decode(ids),
                                      drive(driver, case, "decode", ids), show)
    tokens = sum(map(len, expected))
    bad = {k: v for k, v in wrong.items() if v}
    print(f"{case.name:16} {len(texts)} strings, {tokens} tokens: {'differs: ' + str(bad) if bad else 'equal'}", flush=True)
    return not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", required=True, help="the built tokenizer_driver")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="folder for packages and converted files")
    parser.add_argument("--count", type=int, default=100_000, help="strings for each vocabulary")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only cases whose name begins so")
    parser.add_argument("--show", type=int, default=3, help="differences to print of each kind")
    arguments = parser.parse_args()
    texts = strings.Strings(arguments.seed).generate(arguments.count)
    wheels = vocabularies.download(arguments.work / "packages")
    equal, real = [], set()
    for prefix, build in vocabularies.builders(wheels, arguments.work).items():
        if not prefix.startswith(arguments.only.split("-", maxsplit=1)[0]):
            continue
        for case in build():
            if case.name.startswith(arguments.only):
                equal.append(compare(arguments.driver, case, texts, arguments.seed, arguments.show))
                real.add(case.real)
    print(f"{sum(equal)} of {len(equal)} cases equal, {len(real - {'trained here'})} real vocabularies")
    return 0 if equal and all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
