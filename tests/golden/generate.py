#!/usr/bin/env python3
"""Makes the tiny checkpoints under models/ and their golden outputs, or checks them against another implementation.

  generate.py [NAME...]                               checkpoints and goldens, by reference.py (numpy, float64)
  generate.py --check [NAME...]                       recomputes the goldens with reference.py
  generate.py --check --engine transformers [NAME...] the same with transformers (float32, eager attention)
  generate.py --bfloat16 [--engine transformers] [NAME...]
                                                      prints how far a PyTorch model in bfloat16 is from the goldens

Each models/<name>/ holds config.json, model.safetensors and golden.safetensors:

  prompt        I32 [n]          token ids
  logits        F32 [n, vocab]   of every prompt position
  greedy        I32 [64]         the tokens that follow when always the most likely one is taken
  greedy_gaps   F32 [64]         by how much each of them led the second best

The prompt is chosen among random ones so that the greedy tokens vary and no step is near a tie.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import tensor_files
import tiny_models
from reference import BFloat16, Reference

MODELS = Path(__file__).parent / "models"
NUM_GREEDY = 64
LEAST_DISTINCT = 12  # of the greedy tokens
TOLERANCE = 1e-4     # of the logits' standard deviation
GOLDEN_KINDS = {"prompt": "I32", "logits": "F32", "greedy": "I32", "greedy_gaps": "F32"}


def make_checkpoint(name):
    folder = MODELS / name
    folder.mkdir(parents=True, exist_ok=True)
    config = tiny_models.CONFIGS[name]
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    weights = folder / "model.safetensors"
    weights.unlink(missing_ok=True)
    if name in tiny_models.SHARED_WEIGHTS:
        weights.symlink_to(Path("..") / tiny_models.SHARED_WEIGHTS[name] / weights.name)
        return
    tensors = tiny_models.make_tensors(name)
    kinds = dict.fromkeys(tensors, tiny_models.storage_kind(config))
    tensor_files.save(weights, tensors, kinds, {"format": "pt"})


def load_reference(name, kind=Reference):
    folder = MODELS / name
    config = json.loads((folder / "config.json").read_text())
    return kind(config, tensor_files.load(folder / "model.safetensors"))


def choose_prompt(model, name, count):
    """The golden of the best among `count` random prompts."""
    rng = np.random.default_rng(1000 + len(name))
    eos, vocab = model.config["eos_token_id"], model.config["vocab_size"]
    best, best_gap = None, -1.0
    for _ in range(-(-count // 128)):
        prompts = rng.integers(3, vocab, size=(128, tiny_models.PROMPT_TOKENS[name]))
        logits, tokens, gaps = model.greedy(prompts, NUM_GREEDY)
        for i in range(len(prompts)):
            varied = len(set(tokens[i].tolist())) >= LEAST_DISTINCT and eos not in tokens[i]
            if varied and gaps[i].min() > best_gap:
                best_gap = gaps[i].min()
                best = {"prompt": prompts[i], "logits": logits[i], "greedy": tokens[i], "greedy_gaps": gaps[i]}
    if best is None:
        raise RuntimeError(f"{name}: none of {count} prompts has varied greedy tokens; change its seed")
    return best


def write_golden(name, num_prompts):
    golden = choose_prompt(load_reference(name), name, num_prompts)
    deviation = golden["logits"].std()
    if deviation < 1.0:
        raise RuntimeError(f"{name}: the logits' standard deviation is {deviation:.2f}, expected at least 1")
    metadata = {"engine": "reference.py, float64"}
    tensor_files.save(MODELS / name / "golden.safetensors", golden, GOLDEN_KINDS, metadata)
    distinct, least_gap = len(set(golden["greedy"].tolist())), golden["greedy_gaps"].min() / deviation
    print(f"{name}: logits' deviation {deviation:.2f}, {distinct} different greedy tokens, "
          f"least gap {least_gap:.3f} deviations")


def run_numpy(name, prompt):
    logits, tokens, _ = load_reference(name).greedy(prompt[None, :], NUM_GREEDY)
    return logits[0], tokens[0]


def run_transformers(name, prompt):
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(MODELS / name, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    ids, prompt_logits = torch.tensor(prompt[None, :].astype(np.int64)), None
    with torch.no_grad():
        for _ in range(NUM_GREEDY):
            logits = model(input_ids=ids, use_cache=False).logits
            prompt_logits = logits[0] if prompt_logits is None else prompt_logits
            ids = torch.cat([ids, logits[:, -1:].argmax(dim=-1)], dim=1)
    return prompt_logits.double().numpy(), ids[0, len(prompt) :].numpy()


def bfloat16_logits(name, prompt, engine):
    if engine == "numpy":
        return load_reference(name, BFloat16).forward(prompt[None, :])[0]
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(MODELS / name, dtype=torch.bfloat16, attn_implementation="eager")
    with torch.no_grad():
        return model.eval()(input_ids=torch.tensor(prompt[None, :].astype(np.int64))).logits[0].double().numpy()


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def report_bfloat16(name, engine):
    """The error of log-probabilities relative to their deviation, as golden_test.cc judges it."""
    golden = tensor_files.load(MODELS / name / "golden.safetensors")
    expected = log_softmax(golden["logits"].astype(np.float64))
    error = np.abs(log_softmax(bfloat16_logits(name, golden["prompt"], engine)) - expected) / expected.std()
    print(f"{name}: bfloat16 by {engine}: worst logit {error.max():.3f}, root mean square {np.sqrt((error**2).mean()):.4f}")


def check(name, run):
    """Whether `run` gives the committed golden."""
    golden = tensor_files.load(MODELS / name / "golden.safetensors")
    logits, tokens = run(name, golden["prompt"])
    error = np.abs(logits - golden["logits"]).max() / golden["logits"].std()
    same = np.array_equal(tokens, golden["greedy"])
    good = bool(error < TOLERANCE and same)
    print(f"{name}: largest error {error:.1e} deviations (limit {TOLERANCE:.0e}), "
          f"greedy tokens {'the same' if same else 'DIFFER'}: {'ok' if good else 'FAILED'}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(tiny_models.CONFIGS)}; default: all")
    parser.add_argument("--check", action="store_true", help="compare with the committed goldens, write nothing")
    parser.add_argument("--bfloat16", action="store_true", help="print the error of bfloat16 arithmetic, write nothing")
    parser.add_argument("--engine", choices=["numpy", "transformers"], default="numpy", help="who computes")
    parser.add_argument("--prompts", type=int, default=2048, help="random prompts to choose from")
    args = parser.parse_args()
    unknown = set(args.names) - set(tiny_models.CONFIGS)
    if unknown:
        parser.error(f"unknown model {', '.join(sorted(unknown))}; there are {', '.join(tiny_models.CONFIGS)}")
    if args.engine == "transformers" and not (args.check or args.bfloat16):
        parser.error("--engine transformers only checks: add --check or --bfloat16")
    names = args.names or list(tiny_models.CONFIGS)
    if args.bfloat16:
        for name in names:
            report_bfloat16(name, args.engine)
        return 0
    if args.check:
        results = [check(name, {"numpy": run_numpy, "transformers": run_transformers}[args.engine]) for name in names]
        return 0 if all(results) else 1
    for name in sorted(names, key=lambda n: n in tiny_models.SHARED_WEIGHTS):  # links after what they point to
        make_checkpoint(name)
        write_golden(name, args.prompts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
