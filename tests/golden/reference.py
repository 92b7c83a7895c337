"""The decoder of Llama, Mistral, Qwen2 and Qwen3 in float64 numpy: the equations, with nothing done for speed. BFloat16 is
the same decoder as it is computed in bfloat16 by PyTorch.

It reads a Hugging Face config.json (a dict) and tensors by their Hugging Face names, and is checked against
transformers by `generate.py --check --engine transformers`.
"""

import math

import numpy as np
import tensor_files


def rope_settings(config):
    """(theta, scaling): both ways in which config.json states them, old and new; scaling is {} for none."""
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = parameters.get("rope_theta", config.get("rope_theta", 10000.0))
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    return float(theta), {} if kind == "default" else dict(parameters, rope_type=kind)


def linear_frequencies(frequencies, scaling):
    return frequencies / scaling["factor"]


def llama3_frequencies(frequencies, scaling):
    """Long wavelengths are stretched by `factor`, short ones kept, those between blended."""
    original = scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    wavelengths = 2 * math.pi / frequencies
    blend = np.clip((original / wavelengths - low) / (high - low), 0.0, 1.0)
    return (1 - blend) * frequencies / scaling["factor"] + blend * frequencies


def yarn_frequencies(frequencies, scaling, theta, head_dim):
    """Dimensions that turn often in the original context are kept, those that turn less than once are stretched."""
    original = scaling["original_max_position_embeddings"]

    def dimension_of(rotations):
        return head_dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = dimension_of(scaling.get("beta_fast", 32))
    high = dimension_of(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    ramp = np.clip((np.arange(head_dim // 2) - low) / max(high - low, 0.001), 0.0, 1.0)
    return frequencies * (1 - ramp) + frequencies / scaling["factor"] * ramp


def rope_frequencies(config, head_dim):
    """(frequencies [head_dim / 2], factor on cos and sin)"""
    theta, scaling = rope_settings(config)
    frequencies = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    kind = scaling.get("rope_type")
    if kind is None:
        return frequencies, 1.0
    if kind == "linear":
        return linear_frequencies(frequencies, scaling), 1.0
    if kind == "llama3":
        return llama3_frequencies(frequencies, scaling), 1.0
    if kind == "yarn":
        factor = scaling.get("attention_factor") or 0.1 * math.log(scaling["factor"]) + 1.0
        return yarn_frequencies(frequencies, scaling, theta, head_dim), factor
    raise ValueError(f"rope scaling {kind} has no reference here")


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def softmax(scores):
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def silu(x):
    return x / (1.0 + np.exp(-x))


class Reference:
    """One model. `tensors`: name -> array of any float type."""

    def __init__(self, config, tensors):
        self.config = config
        self.tensors = {name: np.asarray(t, dtype=np.float64) for name, t in tensors.items()}
        self.num_layers = config["num_hidden_layers"]
        self.num_heads = config["num_attention_heads"]
        self.num_kv_heads = config.get("num_key_value_heads", self.num_heads)
        self.head_dim = config.get("head_dim") or config["hidden_size"] // self.num_heads
        self.eps = config["rms_norm_eps"]
        self.window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
        self.frequencies, self.rope_factor = rope_frequencies(config, self.head_dim)

    def linear(self, x, name):
        y = x @ self.tensors[name + ".weight"].T
        bias = self.tensors.get(name + ".bias")
        return y if bias is None else y + bias

    def norm(self, x, name):
        return rms_norm(x, self.tensors[name + ".weight"], self.eps)

    def rotate(self, x, positions):
        """x [batch, heads, n, head_dim]: pairs (i, i + head_dim / 2) are turned by position * frequency."""
        angles = positions[:, None] * self.frequencies
        cos, sin = np.cos(angles) * self.rope_factor, np.sin(angles) * self.rope_factor
        first, second = np.split(x, 2, axis=-1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def heads(self, x, name, count, norm=None):
        batch, n, _ = x.shape
        y = self.linear(x, name).reshape(batch, n, count, self.head_dim)
        if norm is not None and norm + ".weight" in self.tensors:
            y = self.norm(y, norm)
        return y.transpose(0, 2, 1, 3)

    def attention(self, x, layer, cache, start):
        name = f"model.layers.{layer}.self_attn."
        batch, n, _ = x.shape
        positions = np.arange(start, start + n)
        q = self.rotate(self.heads(x, name + "q_proj", self.num_heads, name + "q_norm"), positions)
        k = self.rotate(self.heads(x, name + "k_proj", self.num_kv_heads, name + "k_norm"), positions)
        v = self.heads(x, name + "v_proj", self.num_kv_heads)
        if layer in cache:
            k = np.concatenate([cache[layer][0], k], axis=2)
            v = np.concatenate([cache[layer][1], v], axis=2)
        cache[layer] = (k, v)
        group = self.num_heads // self.num_kv_heads
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        distance = positions[:, None] - np.arange(k.shape[2])[None, :]
        visible = distance >= 0
        if self.window:
            visible &= distance < self.window
        mixed = self.mix(q, k, v, visible)
        return self.linear(mixed.transpose(0, 2, 1, 3).reshape(batch, n, -1), name + "o_proj")

    def mix(self, q, k, v, visible):
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(self.head_dim)
        return softmax(np.where(visible, scores, -np.inf)) @ v

    def gated(self, gate, up):
        return silu(gate) * up

    def add(self, x, y):
        return x + y

    def mlp(self, x, layer):
        name = f"model.layers.{layer}.mlp."
        return self.linear(self.gated(self.linear(x, name + "gate_proj"), self.linear(x, name + "up_proj")), name + "down_proj")

    def forward(self, ids, cache=None):
        """ids [batch, n] -> logits [batch, n, vocab]. `cache`: {} at first, then what the call before left in it."""
        cache = {} if cache is None else cache
        start = cache[0][0].shape[2] if cache else 0
        x = self.tensors["model.embed_tokens.weight"][ids]
        for layer in range(self.num_layers):
            name = f"model.layers.{layer}."
            x = self.add(x, self.attention(self.norm(x, name + "input_layernorm"), layer, cache, start))
            x = self.add(x, self.mlp(self.norm(x, name + "post_attention_layernorm"), layer))
        x = self.norm(x, "model.norm")
        tied = self.config.get("tie_word_embeddings", False)
        return self.linear(x, "model.embed_tokens" if tied else "lm_head")

    def greedy(self, prompts, count):
        """prompts [batch, n] -> (logits of the prompts, tokens [batch, count], gaps between the best two logits)."""
        cache, tokens, gaps = {}, [], []
        prompt_logits = logits = self.forward(prompts, cache)
        for step in range(count):
            best = np.sort(logits[:, -1], axis=-1)[:, -2:]
            gaps.append(best[:, 1] - best[:, 0])
            tokens.append(logits[:, -1].argmax(axis=-1))
            if step + 1 < count:
                logits = self.forward(tokens[-1][:, None], cache)
        return prompt_logits, np.stack(tokens, axis=1), np.stack(gaps, axis=1)


def bfloat16(x):
    return (tensor_files.to_bfloat16(x).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


class BFloat16(Reference):
    """What a PyTorch model in bfloat16 gives: every operation's result is rounded, as transformers (eager attention)
    strings them together; sums within a matrix product, a norm and a softmax are not."""

    def __init__(self, config, tensors):
        super().__init__(config, {name: bfloat16(t) for name, t in tensors.items()})

    def linear(self, x, name):
        return bfloat16(super().linear(x, name))

    def norm(self, x, name):
        return bfloat16(bfloat16(rms_norm(x, 1.0, self.eps)) * self.tensors[name + ".weight"])

    def rotate(self, x, positions):
        angles = positions[:, None] * self.frequencies
        cos, sin = bfloat16(np.cos(angles) * self.rope_factor), bfloat16(np.sin(angles) * self.rope_factor)
        first, second = np.split(x, 2, axis=-1)
        return bfloat16(np.concatenate([bfloat16(first * cos) - bfloat16(second * sin),
                                        bfloat16(second * cos) + bfloat16(first * sin)], axis=-1))

    def mix(self, q, k, v, visible):
        scores = bfloat16(bfloat16(q @ k.transpose(0, 1, 3, 2)) / math.sqrt(self.head_dim))
        return bfloat16(bfloat16(softmax(np.where(visible, scores, -np.inf))) @ v)

    def gated(self, gate, up):
        return bfloat16(bfloat16(silu(gate)) * up)

    def add(self, x, y):
        return bfloat16(x + y)
