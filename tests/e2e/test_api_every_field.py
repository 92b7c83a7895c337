"""Every field of a request that vLLM's users know: it is taken, alone and in a stream, or refused with its name."""
import unittest

from api_server import MODEL, SMALL, ApiTest

TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}}]

# name: values that are taken by both APIs
TAKEN = {
    "model": [MODEL, "alias"], "frequency_penalty": [0, -2, 2], "presence_penalty": [0, -2.0, 2], "logit_bias": [{}, {"65": -100, "66": 5}],
    "n": [1, 2], "seed": [0, -1, 7, 2**62], "stop": [[], "x", ["x", "yy"]], "stream": [False, True],
    "stream_options": [{"include_usage": False, "continuous_usage_stats": False}, {"include_usage": True}],
    "temperature": [0, 0.0, 1.5], "top_p": [1, 0.1], "user": ["somebody"], "top_k": [0, -1, 5], "min_p": [0.0, 0.5],
    "repetition_penalty": [1.0, 1.2], "length_penalty": [1.0], "use_beam_search": [False], "stop_token_ids": [[], [7, 8]],
    "include_stop_str_in_output": [False, True], "ignore_eos": [False, True], "min_tokens": [0, 2], "skip_special_tokens": [True, False],
    "spaces_between_special_tokens": [True], "truncate_prompt_tokens": [None, 3, -1], "prompt_logprobs": [None, 0, 2],
    "allowed_token_ids": [None, [65, 66]], "bad_words": [[], ["zz", "a b"]], "echo": [False, True], "add_special_tokens": [False, True],
    "priority": [0], "request_id": ["a-1"], "return_tokens_as_token_ids": [None, True], "return_token_ids": [None, True],
    "cache_salt": ["s"], "kv_transfer_params": [None, {}], "vllm_xargs": [None, {}], "repetition_detection": [None],
    "response_format": [None, {"type": "text"}, {"type": "json_object"},
                        {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": {"type": "integer"}}}],
    "structured_outputs": [None, {"json": {"type": "null"}}, {"regex": "a+"}, {"choice": ["a", "b"]}, {"grammar": "root ::= \"x\""}, {"json_object": True}],
    "guided_json": [None, {"type": "object"}, '{"type": "null"}'], "guided_regex": ["[0-9]+"], "guided_choice": [["yes", "no"]],
    "guided_grammar": ["root ::= [ab]+"],
}
CHAT_ONLY = {
    "logprobs": [False, True], "top_logprobs": [0], "max_tokens": [None, 3], "max_completion_tokens": [None, 3], "tools": [None, []],
    "tool_choice": [None, "none"], "parallel_tool_calls": [True, False], "reasoning_effort": ["low", None], "include_reasoning": [True],
    "add_generation_prompt": [True, False], "continue_final_message": [False], "documents": [None, [{"title": "t", "text": "x"}]],
    "chat_template": [None], "chat_template_kwargs": [None, {"a": 1}], "mm_processor_kwargs": [None, {}], "thinking_token_budget": [None],
}
COMPLETION_ONLY = {"logprobs": [None, 0, 3], "max_tokens": [None, 1, 16], "suffix": [None, ""], "prompt_embeds": [None],
                   "prompt": ["x", [1, 2], ["x", "y"], [[1], [2, 3]], ["x", [1, 2]]]}

# name: a value that would change the answer and is not built, or cannot be
REFUSED = {
    "frequency_penalty": 2.1, "presence_penalty": -3, "logit_bias": {"x": 1}, "n": 0, "seed": "x", "stop": [3], "stream": "yes",
    "temperature": -0.1, "top_p": 0, "top_k": 1.5, "min_p": 2, "repetition_penalty": 0, "use_beam_search": True, "stop_token_ids": ["a"],
    "ignore_eos": 1, "min_tokens": -1, "truncate_prompt_tokens": 0, "prompt_logprobs": 1000, "allowed_token_ids": [], "bad_words": [""],
    "priority": 2, "request_id": "with space", "kv_transfer_params": {"a": 1}, "vllm_xargs": {"a": 1}, "structured_outputs": {"json": {}, "regex": "a"},
    "repetition_detection": {"a": 1}, "response_format": {"type": "xml"}, "best_of": 2, "guided_json": {"not": {}},
    "guided_regex": "(?=a)", "guided_choice": [], "guided_grammar": "start: \"a\"",
    "logits_processors": ["x"], "model": 3,
}
REFUSED_CHAT = {"top_logprobs": 3, "tools": [{}], "max_completion_tokens": 0, "chat_template": "{{ messages }}", "messages": [],
                "thinking_token_budget": 3, "functions": [{"name": "f"}], "tool_choice": "somehow", "modalities": ["audio"],
                "continue_final_message": True}
REFUSED_COMPLETION = {"suffix": "x", "prompt_embeds": "x", "logprobs": 1000, "max_tokens": 0, "prompt": {}}


class EveryField(ApiTest):
    CONFIG = SMALL

    def body_of(self, chat, name, value):
        body = {"model": MODEL, "max_tokens": 4, **({"messages": [{"role": "user", "content": "Hello"}]} if chat else {"prompt": "Hello"})}
        body[name] = value
        if name == "stream_options":
            body["stream"] = True
        if name == "max_completion_tokens":
            del body["max_tokens"]
        if name == "top_logprobs" and value == 0:
            body["logprobs"] = True
        return body

    def path(self, chat):
        return "/v1/chat/completions" if chat else "/v1/completions"

    def test_taken(self):
        for chat, table in ((True, TAKEN | CHAT_ONLY), (False, TAKEN | COMPLETION_ONLY)):
            for name, values in table.items():
                for value in values:
                    body = self.body_of(chat, name, value)
                    status, _, answer = self.post(self.path(chat), body)
                    self.assertEqual(status, 200, (name, value, answer))
                    if not body.get("stream") and name not in ("max_tokens", "max_completion_tokens"):
                        used = answer["usage"]["completion_tokens"]
                        self.assertLessEqual(used, 4 * len(answer["choices"]), (name, value))

    def test_refused(self):
        for chat, table in ((True, REFUSED | REFUSED_CHAT), (False, REFUSED | REFUSED_COMPLETION)):
            for name, value in table.items():
                status, _, answer = self.post(self.path(chat), self.body_of(chat, name, value))
                self.assertEqual(status, 400, (name, value, answer))
                self.assertTrue((answer["error"]["param"] or "").startswith(name), (name, answer))
                self.assertIn(f"`{name}", answer["error"]["message"])

    def test_defaults_come_from_the_model_where_it_has_some(self):
        """Left out, null and the default are the same."""
        for chat in (True, False):
            def text(**fields):
                body = self.body_of(chat, "seed", 5) | {"max_tokens": 12} | fields
                choice = self.post(self.path(chat), body)[2]["choices"][0]
                return choice["message"]["content"] if chat else choice["text"]
            plain = text()
            self.assertEqual(plain, text(temperature=1.0, top_p=1.0, top_k=0, min_p=0.0, repetition_penalty=1.0, frequency_penalty=0,
                                         presence_penalty=0, n=1, stop=[], logit_bias={}, length_penalty=1, stream=False))
            self.assertEqual(plain, text(temperature=None, top_p=None, top_k=None, min_p=None, stop=None, n=None, seed=5))

    def test_sixteen_tokens_is_the_default_of_completions_alone(self):
        body = {"model": MODEL, "prompt": "Hello", "ignore_eos": True}
        self.assertEqual(self.post("/v1/completions", body)[2]["usage"]["completion_tokens"], 16)
        chat = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "ignore_eos": True}
        self.assertEqual(self.post("/v1/chat/completions", chat)[2]["usage"]["total_tokens"], 1024)


class ToolCalls(ApiTest):
    CONFIG = SMALL
    FLAGS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")

    def test_auto_is_the_default_with_tools(self):
        for fields in ({"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": False}):
            body = self.chat(**fields)
            self.assertEqual(body["choices"][0]["message"]["tool_calls"], [])
        named = {"type": "function", "function": {"name": "f"}}
        for choice in ("required", named):
            calls = self.chat(tools=TOOLS, tool_choice=choice, max_tokens=200, ignore_eos=False, temperature=1, seed=1)["choices"][0]["message"]["tool_calls"]
            self.assertEqual({c["function"]["name"] for c in calls}, {"f"})


if __name__ == "__main__":
    unittest.main()
