#!/usr/bin/env python3
"""Sets the chat template renderer against Python's jinja2: the same bytes, or an error on both sides.

    python3 tests/templates/compare.py --build DIR --count 100            the templates of this folder
    python3 tests/templates/compare.py --build DIR --templates FOLDER     and *.jinja files from elsewhere
    python3 tests/templates/compare.py --build DIR --fuzz 20000           random small templates

Needs the Python package jinja2 (3.1.6 or newer) and the target render_lines of the build.
"""

import argparse
import difflib
import json
import pathlib
import random
import subprocess
import sys

try:
    from reference import Reference
except ImportError as e:
    sys.exit(f"{e}: install the Python package jinja2, or run this with a Python that has it")
from conversations import Conversations
from grammar import Grammar

HERE = pathlib.Path(__file__).parent


class Renderer:
    """Our renderer, fed line by line."""

    def __init__(self, build):
        self.program = pathlib.Path(build) / "tests" / "templates" / "render_lines"
        if not self.program.exists():
            sys.exit(f"{self.program} is missing: build the target render_lines first")
        self.start()

    def start(self):
        self.process = subprocess.Popen([self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, source, context):
        line = json.dumps({"template": source, "context": context})
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            code = self.process.wait()
            self.start()
            return {"crash": f"render_lines ended with status {code}"}
        return json.loads(answer)


def agree(ours, expected):
    if "crash" in ours:
        return False
    if "raised" in expected:
        return ours.get("error") == expected["raised"]
    if "error" in expected:
        return "error" in ours
    return ours == expected


def report(name, source, context, ours, expected):
    print(f"=== {name} ===")
    if "text" in ours and "text" in expected:
        lines = difflib.unified_diff(
            expected["text"].splitlines(True), ours["text"].splitlines(True), "jinja2", "ours"
        )
        print("".join(repr(line) + "\n" for line in lines if not line.startswith(" "))[:3000])
    else:
        print("jinja2:", str(expected)[:1500])
        print("ours:  ", str(ours)[:1500])
    print("context:", json.dumps(context, ensure_ascii=False)[:600])
    if len(source) < 1500:
        print("template:", source)


def cases(args, rng):
    """(name, template, context) of everything to compare."""
    if args.fuzz:
        grammar = Grammar(rng)
        for i in range(args.fuzz):
            yield f"random template {i}", grammar.template(), grammar.context()
        return
    conversations = Conversations(rng)
    folders = [HERE] + [pathlib.Path(folder) for folder in args.templates]
    for path in sorted(p for folder in folders for p in folder.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for i in range(args.count):
            yield f"{path.name} {i}", source, conversations.context()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", required=True, help="build folder")
    parser.add_argument("--count", type=int, default=100, help="conversations per template")
    parser.add_argument("--templates", action="append", default=[], help="another folder with *.jinja files")
    parser.add_argument("--fuzz", type=int, default=0, help="compare this many random templates instead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", action="store_true", help="print the figures of each template")
    parser.add_argument("--show", type=int, default=10, help="differences to print")
    args = parser.parse_args()
    renderer, reference = Renderer(args.build), Reference()
    total = texts = differences = 0
    by_template = {}
    for name, source, context in cases(args, random.Random(args.seed)):
        expected = reference.render(source, context)
        ours = renderer.render(source, context)
        total += 1
        texts += "text" in expected
        figures = by_template.setdefault(name.rsplit(" ", 1)[0], {"compared": 0, "rendered": 0, "differences": 0})
        figures["compared"] += 1
        figures["rendered"] += "text" in expected
        if not agree(ours, expected):
            differences += 1
            figures["differences"] += 1
            if differences <= args.show:
                report(name, source, context, ours, expected)
    if args.each:
        for name, figures in by_template.items():
            print(f"{name}: " + ", ".join(f"{n} {what}" for what, n in figures.items()))
    print(
        f"{total} compared, {texts} of them rendered by jinja2, {differences} differences (seed {args.seed})"
    )
    if texts == 0:
        sys.exit("nothing was rendered")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
