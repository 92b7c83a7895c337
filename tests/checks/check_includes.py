#!/usr/bin/env python3
"""Checks who includes whom under src/ (docs/architecture.md, section "Who may include whom")."""
import pathlib
import re
import sys

BELOW = {
    "base": [],
    "grammar": ["base"],
    "config": ["base"],
    "tensor": ["base"],
    "ops": ["config", "tensor", "base"],
    "comm": ["tensor", "base"],
    "weights": ["tensor", "base"],
    "protocol": ["config", "base"],
    "text": ["config", "base"],
    "nn": ["ops", "comm", "tensor", "config", "base"],
    "models": ["nn", "ops", "tensor", "config", "base"],
    "engine": ["protocol", "config", "base"],
    "runtime": ["models", "nn", "ops", "comm", "weights", "tensor", "protocol", "grammar", "config", "base"],
    "cluster": ["engine", "protocol", "comm", "config", "base"],
    "server": ["text", "engine", "protocol", "grammar", "config", "base"],
    "bench": ["text", "base"],
    "planner": ["engine", "protocol", "config", "base"],
}
# Some folders see only a part of another one.
ONLY = {("cluster", "engine"): {"engine/executor.h"}, ("cluster", "comm"): {"comm/store.h"}}
# Headers that compile slowly or tie us to a library: the folders that may include them, and in how many .cc files.
LIBRARIES = [
    (re.compile(r"<boost/"), {"server"}, 2),
    (re.compile(r"<grpcpp/|<grpc/"), {"cluster"}, 3),
    (re.compile(r"<nlohmann/"), {"base"}, 0),
    (re.compile(r"<spdlog/"), {"base"}, 1),
    (re.compile(r"<cuda|<nccl|<cublas"), {"ops", "comm", "tensor", "runtime"}, 99),
    (re.compile(r"<CLI/"), {"apps"}, 99),
]
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def folder_of(path, root):
    parts = path.relative_to(root).parts
    return parts[1] if parts[0] == "src" else parts[0]


def check_project_include(path, folder, header, is_test):
    target = header.split("/")[0]
    if folder not in BELOW or target not in BELOW or target == folder:
        return None
    if target not in BELOW[folder]:
        return f"{folder}/ may not include {target}/"
    only = ONLY.get((folder, target))
    if only and header not in only and not is_test:
        return f"{folder}/ may include only {', '.join(sorted(only))} of {target}/"
    return None


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    problems, users = [], {}
    files = [p for top in ("src", "apps") for p in sorted((root / top).rglob("*")) if p.suffix in {".h", ".cc", ".cu", ".cuh"}]
    if not files:
        sys.exit(f"no sources under {root}")
    for path in files:
        folder, is_test = folder_of(path, root), path.stem.endswith("_test")
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            where = f"{path.relative_to(root)}:{number}"
            if match[1] == '"':
                problem = check_project_include(path, folder, match[2], is_test)
                if problem:
                    problems.append(f"{where}: {problem} ({match[2]})")
                continue
            for pattern, allowed, _ in LIBRARIES:
                if pattern.search(f"<{match[2]}"):
                    users.setdefault(pattern.pattern, set()).add(str(path.relative_to(root)))
                    if folder not in allowed:
                        problems.append(f"{where}: <{match[2]}> belongs in {', '.join(sorted(allowed))}/ only")
    for pattern, _, limit in LIBRARIES:
        sources = sorted(f for f in users.get(pattern.pattern, ()) if f.endswith(".cc") and not f.endswith("_test.cc"))
        if len(sources) > limit:
            problems.append(f"{pattern.pattern}: included by {len(sources)} .cc files, {limit} allowed: {', '.join(sources)}")
    print("\n".join(problems) if problems else f"{len(files)} files keep the include rules")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
