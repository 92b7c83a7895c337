"""The tiny random checkpoints: their configurations, and weights whose logits spread enough to tell right from wrong.

Constants are chosen so that each of them matters: contexts of 32 tokens for the rope scalings, an eps of 1e-3.
"""

import numpy as np

COMMON = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 256, "hidden_act": "silu",
    "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": True,
}
LLAMA = dict(
    COMMON, architectures=["LlamaForCausalLM"], model_type="llama", num_attention_heads=4, num_key_value_heads=2,
    rms_norm_eps=1e-3, attention_bias=False, mlp_bias=False, tie_word_embeddings=True, torch_dtype="float32",
    rope_theta=10000.0, max_position_embeddings=128,
)
ORIGINAL = {"original_max_position_embeddings": 32}

# name -> config.json. Those of SHARED_WEIGHTS have the shapes of "llama3" and link to its weights.
CONFIGS = {
    "llama3": dict(
        LLAMA, max_position_embeddings=256,
        rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **ORIGINAL},
    ),
    "llama_linear": dict(LLAMA, rope_scaling={"type": "linear", "factor": 4.0}),
    "llama_yarn": dict(LLAMA, rope_scaling={"rope_type": "yarn", "factor": 4.0, **ORIGINAL}),
    "mistral": dict(
        {key: value for key, value in LLAMA.items() if key not in ("attention_bias", "mlp_bias")},
        architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=6,
    ),
    "llama2": dict(
        LLAMA, num_key_value_heads=4, tie_word_embeddings=False, torch_dtype="float16", intermediate_size=64,
        rope_scaling=None,
    ),
    "qwen2": dict(
        COMMON, architectures=["Qwen2ForCausalLM"], model_type="qwen2", num_attention_heads=6, num_key_value_heads=3,
        head_dim=16, rms_norm_eps=1e-3, tie_word_embeddings=True, torch_dtype="bfloat16", rope_theta=1000000.0,
        max_position_embeddings=128, sliding_window=128, max_window_layers=2, use_sliding_window=False,
    ),
    "qwen3": dict(
        COMMON, architectures=["Qwen3ForCausalLM"], model_type="qwen3", num_attention_heads=4, num_key_value_heads=1,
        head_dim=32, rms_norm_eps=1e-3, tie_word_embeddings=False, dtype="bfloat16", attention_bias=False,
        max_position_embeddings=128, sliding_window=None, use_sliding_window=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    ),
}
SHARED_WEIGHTS = {"llama_linear": "llama3", "llama_yarn": "llama3", "mistral": "llama3"}
SEEDS = {"llama3": 11, "llama2": 12, "qwen2": 13, "qwen3": 14}
PROMPT_TOKENS = {name: 24 if name == "mistral" else 16 for name in CONFIGS}


def storage_kind(config):
    return {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[config.get("torch_dtype") or config["dtype"]]


class Initializer:
    """Normal weights; a linear layer's output has `gain` times the spread of its input."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.tensors = {}

    def normal(self, name, shape, deviation, mean=0.0):
        self.tensors[name] = (mean + deviation * self.rng.standard_normal(shape)).astype(np.float32)

    def linear(self, name, outputs, inputs, gain, bias=False):
        self.normal(name + ".weight", (outputs, inputs), gain / np.sqrt(inputs))
        if bias:
            self.normal(name + ".bias", (outputs,), 0.5)

    def norm(self, name, size):
        self.normal(name + ".weight", (size,), 0.2, mean=1.0)


def make_tensors(name):
    """The weights of a model that has its own, as float32 arrays."""
    config = CONFIGS[name]
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim", hidden // heads)
    qwen2, qwen3 = config["model_type"] == "qwen2", config["model_type"] == "qwen3"
    init = Initializer(SEEDS[name])
    # A tied model with large embeddings would only repeat its last token.
    init.normal("model.embed_tokens.weight", (config["vocab_size"], hidden), 0.16 if config["tie_word_embeddings"] else 0.4)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for projection, count in (("q", heads), ("k", config["num_key_value_heads"]), ("v", config["num_key_value_heads"])):
            gain = 1.0 if projection == "v" or qwen3 else 1.4
            init.linear(f"{prefix}self_attn.{projection}_proj", count * head_dim, hidden, gain, bias=qwen2)
        init.linear(prefix + "self_attn.o_proj", hidden, heads * head_dim, 0.9)
        if qwen3:
            init.norm(prefix + "self_attn.q_norm", head_dim)
            init.norm(prefix + "self_attn.k_norm", head_dim)
        for projection in ("gate", "up"):
            init.linear(f"{prefix}mlp.{projection}_proj", config["intermediate_size"], hidden, 1.3)
        init.linear(prefix + "mlp.down_proj", hidden, config["intermediate_size"], 0.9)
        init.norm(prefix + "input_layernorm", hidden)
        init.norm(prefix + "post_attention_layernorm", hidden)
    init.norm("model.norm", hidden)
    if not config["tie_word_embeddings"]:
        init.linear("lm_head", config["vocab_size"], hidden, 3.0)
    return init.tensors
