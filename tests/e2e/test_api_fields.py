"""Every request field of the two completion APIs, against a running server."""
import unittest

from api_server import MODEL, ApiTest

LONG = "/v1/chat/completions"


class Completions(ApiTest):
    def test_defaults_and_usage(self):
        body = self.complete()
        self.assertEqual(body["object"], "text_completion")
        self.assertEqual(body["model"], MODEL)
        self.assertEqual(body["usage"], {"prompt_tokens": 5, "total_tokens": 21, "completion_tokens": 16, "prompt_tokens_details": None})
        self.assertEqual(body["choices"][0]["finish_reason"], "length")

    def test_prompt_forms_give_the_same_answer(self):
        tokens = self.post("/tokenize", {"prompt": "Hello"})[2]["tokens"]
        text = self.complete()["choices"][0]["text"]
        self.assertEqual(self.complete(prompt=tokens)["choices"][0]["text"], text)
        body = self.complete(prompt=["Hello", tokens, "Hello"])
        self.assertEqual([c["text"] for c in body["choices"]], [text] * 3)
        self.assertEqual(body["usage"]["prompt_tokens"], 15)

    def test_streams_say_the_same(self):
        body = self.complete(max_tokens=20)
        events = self.events("/v1/completions", prompt="Hello", max_tokens=20, stream_options={"include_usage": True, "continuous_usage_stats": True})
        self.assertEqual("".join(e["choices"][0]["text"] for e in events[:-1]), body["choices"][0]["text"])
        self.assertEqual(events[-1]["choices"], [])
        self.assertEqual(events[-1]["usage"]["completion_tokens"], 20)
        counts = [e["usage"]["completion_tokens"] for e in events[:-1]]
        self.assertEqual(counts, sorted(counts))
        self.assertEqual(len({e["id"] for e in events}), 1)

    def test_seed_and_n(self):
        def texts(**fields):
            return [c["text"] for c in self.complete(temperature=1.0, n=3, **fields)["choices"]]
        first = texts(seed=7)
        self.assertEqual(first, texts(seed=7))
        self.assertNotEqual(first, texts(seed=8))
        self.assertEqual(len(set(first)), 3)
        self.assertEqual(self.complete(n=3)["usage"]["completion_tokens"], 48)

    def test_logprobs(self):
        logprobs = self.complete(logprobs=3, max_tokens=4)["choices"][0]["logprobs"]
        self.assertEqual(len(logprobs["tokens"]), 4)
        for token, logprob, top in zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]):
            self.assertAlmostEqual(top[token], logprob, places=5)
            self.assertEqual(max(top.values()), logprob)  # greedy
            self.assertLessEqual(logprob, 0)
        ids = self.complete(logprobs=1, max_tokens=2, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]["tokens"]
        self.assertTrue(all(t.startswith("token_id:") for t in ids))

    def test_echo_and_prompt_logprobs(self):
        choice = self.complete(echo=True, max_tokens=0, logprobs=1)["choices"][0]
        self.assertEqual(choice["text"], "Hello")
        self.assertEqual(len(choice["logprobs"]["tokens"]), 5)
        self.assertIsNone(choice["logprobs"]["token_logprobs"][0])
        prompt = self.complete(prompt_logprobs=2, max_tokens=1)["choices"][0]["prompt_logprobs"]
        self.assertEqual(len(prompt), 5)
        self.assertIsNone(prompt[0])
        self.assertTrue(all(len(entry) >= 2 for entry in prompt[1:]))
        again = self.complete(prompt_logprobs=2, max_tokens=1)["choices"][0]["prompt_logprobs"]
        self.assertEqual(len(again), 5)  # also when the prefix cache knows the prompt

    def test_token_constraints(self):
        ids = self.complete(allowed_token_ids=[65, 66], max_tokens=6, return_token_ids=True)["choices"][0]["token_ids"]
        self.assertTrue(set(ids) <= {65, 66}, ids)
        ids = self.complete(logit_bias={"70": 100}, max_tokens=3, return_token_ids=True)["choices"][0]["token_ids"]
        self.assertEqual(ids, [70, 70, 70])
        ids = self.complete(logit_bias={"70": 100}, stop_token_ids=[70], ignore_eos=False, return_token_ids=True)["choices"][0]
        self.assertEqual((ids["token_ids"], ids["finish_reason"], ids["stop_reason"], ids["text"]), ([70], "stop", 70, ""))
        body = self.complete(logit_bias={"70": 100}, stop_token_ids=[70], min_tokens=4, max_tokens=9)
        self.assertGreaterEqual(body["usage"]["completion_tokens"], 4)

    def test_stop_strings(self):
        letter = self.post("/tokenize", {"prompt": "Q"})[2]["tokens"][0]
        choice = self.complete(logit_bias={str(letter): 100}, stop=["QQQ"], max_tokens=10)
        self.assertEqual(choice["choices"][0]["text"], "")
        self.assertEqual(choice["choices"][0]["stop_reason"], "QQQ")
        self.assertEqual(choice["usage"]["completion_tokens"], 3)
        shown = self.complete(logit_bias={str(letter): 100}, stop="QQ", include_stop_str_in_output=True)["choices"][0]["text"]
        self.assertEqual(shown, "QQ")

    def test_penalties_and_bad_words_change_the_answer(self):
        letter = self.post("/tokenize", {"prompt": "Q"})[2]["tokens"][0]
        bias = {str(letter): 30}
        for penalty in ({"presence_penalty": 2}, {"frequency_penalty": 2}, {"repetition_penalty": 50.0}, {"bad_words": ["Q"]},
                        {"top_k": 1, "temperature": 1.0}, {"min_p": 1.0, "temperature": 1.0}, {"top_p": 1e-6, "temperature": 1.0}):
            ids = self.complete(logit_bias=bias if "bad_words" in penalty else {}, return_token_ids=True, **penalty)["choices"][0]["token_ids"]
            self.assertEqual(len(ids), 16)
            if "bad_words" in penalty:
                self.assertNotIn(letter, ids)
        greedy = self.complete()["choices"][0]["text"]
        for exact in ({"top_k": 1}, {"min_p": 1.0}, {"top_p": 1e-6}):
            self.assertEqual(self.complete(temperature=1.0, **exact)["choices"][0]["text"], greedy)

    def test_truncation_and_limits(self):
        self.assertEqual(self.complete(prompt="x" * 3000, truncate_prompt_tokens=10)["usage"]["prompt_tokens"], 10)
        self.assertEqual(self.complete(max_tokens=None)["usage"]["total_tokens"], 1024)
        for fields, param in (({"prompt": "x" * 3000}, "prompt"), ({"max_tokens": 1024}, "max_tokens")):
            status, _, body = self.post("/v1/completions", {"prompt": "Hello", **fields})
            self.assertEqual((status, body["error"]["param"]), (400, param))

    def test_refusals_name_the_field(self):
        for fields in ({"temperature": -1}, {"top_p": 2}, {"n": 0}, {"suffix": "x"}, {"use_beam_search": True}, {"best_of": 3},
                       {"response_format": {"type": "xml"}}, {"guided_regex": "("}, {"priority": 3},
                       {"logprobs": 21}, {"stop": [""]}, {"prompt_embeds": "x"}, {"stream_options": {"include_usage": True}}):
            status, _, body = self.post("/v1/completions", {"prompt": "Hello", **fields})
            self.assertEqual(status, 400, fields)
            self.assertEqual(body["error"]["param"], next(iter(fields)))
            self.assertEqual(body["error"]["code"], 400)
        status, _, body = self.post("/v1/completions", {"prompt": "Hello", "model": "other"})
        self.assertEqual((status, body["error"]["type"]), (404, "NotFoundError"))
        for text in ("", "{", "[]", '{"prompt": "\ud800"}'.encode("utf-8", "surrogatepass")):
            self.assertEqual(self.post("/v1/completions", text)[0], 400)

    def test_keys_and_health(self):
        wrong = {"Authorization": "Bearer wrong"}
        for path in ("/v1/models", "/metrics", "/load", "/version", "/nothing"):
            self.assertEqual(self.get(path, **wrong)[0], 401)
            self.assertIn(self.get(path)[0], (200, 404))
        for path in ("/health", "/ready"):
            self.assertEqual(self.get(path, **wrong)[0], 200)
        for path in ("/health?deep", "/health_generate"):
            self.assertEqual(self.get(path)[0], 200)
        self.assertEqual([m["id"] for m in self.get("/v1/models")[2]["data"]], [MODEL, "alias"])

    def test_metrics(self):
        self.complete(max_tokens=3)
        text = self.get("/metrics")[2]
        for name in ("num_requests_running", "kv_cache_usage_perc", "generation_tokens_total", "request_success_total",
                     "time_to_first_token_seconds_bucket", "inter_token_latency_seconds_bucket", "e2e_request_latency_seconds_count",
                     "request_prompt_tokens_bucket", "prefix_cache_queries_total", "cache_config_info"):
            for prefix in ("vllm:", "tutti:"):
                self.assertIn(f"\n{prefix}{name}{{", text)

    def test_timeouts(self):
        status, _, body = self.post("/v1/completions", {"prompt": "Hello", "max_tokens": 1000, "ignore_eos": True}, **{"X-Request-Timeout": "0.05"})
        self.assertEqual((status, body["error"]["type"]), (504, "TimeoutError"))


class Chat(ApiTest):
    FLAGS = ("--enable-request-id-headers", "--enable-prompt-tokens-details", "--stream-interval", "4")

    def test_defaults_and_usage(self):
        body = self.chat()
        self.assertEqual(body["object"], "chat.completion")
        self.assertEqual(body["choices"][0]["message"]["role"], "assistant")
        self.assertEqual(body["usage"]["completion_tokens"], 8)
        self.assertIn("cached_tokens", body["usage"]["prompt_tokens_details"])
        rest = self.chat(max_tokens=None)
        self.assertEqual(rest["usage"]["total_tokens"], 1024)

    def test_streams_say_the_same(self):
        body = self.chat(max_completion_tokens=17)
        messages = [{"role": "user", "content": "Hello"}]
        events = self.events(LONG, messages=messages, max_completion_tokens=17)
        self.assertEqual(events[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        text = "".join(e["choices"][0]["delta"]["content"] for e in events)
        self.assertEqual(text, body["choices"][0]["message"]["content"])
        self.assertLessEqual(len(events), 2 + 17 // 4 + 1)  # --stream-interval 4
        self.assertEqual(events[-1]["choices"][0]["finish_reason"], "length")

    def test_content_parts_and_templates(self):
        parts = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
        self.assertEqual(self.chat(messages=parts)["choices"], self.chat()["choices"])
        longer = self.chat(messages=[{"role": "system", "content": "Be brief"}, *parts])["usage"]["prompt_tokens"]
        self.assertGreater(longer, self.chat()["usage"]["prompt_tokens"])
        tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
        self.chat(tools=tools, tool_choice="none", chat_template_kwargs={"x": 1}, reasoning_effort="low", user="u")

    def test_continue_final_message(self):
        messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Well"}]
        body = self.chat(messages=messages, add_generation_prompt=False, continue_final_message=True, echo=True)
        self.assertTrue(body["choices"][0]["message"]["content"].startswith("Well"))

    def test_logprobs(self):
        content = self.chat(logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(content), 8)
        for entry in content:
            self.assertEqual(set(entry), {"token", "logprob", "bytes", "top_logprobs"})
            self.assertEqual(len(entry["top_logprobs"]), 2)
            self.assertAlmostEqual(entry["top_logprobs"][0]["logprob"], entry["logprob"], places=5)

    def test_request_ids(self):
        _, headers, body = self.post(LONG, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}, **{"X-Request-Id": "abc"})
        self.assertEqual((headers["x-request-id"], body["id"]), ("abc", "chatcmpl-abc"))

    def test_refusals_name_the_field(self):
        user = [{"role": "user", "content": "x"}]
        image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]
        tools = [{"type": "function", "function": {"name": "f"}}]
        for fields, param in (({"messages": []}, "messages"), ({"messages": image}, "messages[0].content[0]"),
                              ({"top_logprobs": 2}, "top_logprobs"), ({"tools": tools, "tool_choice": "sometimes"}, "tool_choice"),
                              ({"chat_template": "x"}, "chat_template"), ({"modalities": ["audio"]}, "modalities")):
            status, _, body = self.post(LONG, {"messages": user, **fields})
            self.assertEqual((status, body["error"]["param"]), (400, param), body)


if __name__ == "__main__":
    unittest.main()
