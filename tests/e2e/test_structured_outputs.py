"""Answers whose form a request says: a random model, drawing at temperature 1, still answers in it."""
import concurrent.futures
import json
import re
import time
import unittest

from api_server import SMALL, ApiTest

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "share": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
        "color": {"enum": ["red", "green", None]},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-\\d{3}$"},
        "day": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 4}, "minItems": 1, "maxItems": 3},
        "node": {"$ref": "#/$defs/node"},
    },
    "required": ["name", "age", "share", "color", "code", "day", "tags"],
    "additionalProperties": False,
    "$defs": {"node": {"type": "object", "properties": {"left": {"$ref": "#/$defs/node"}, "v": {"type": "boolean"}}, "required": ["v"]}},
}


def check_node(node):
    assert isinstance(node["v"], bool) and set(node) <= {"left", "v"}
    if "left" in node:
        check_node(node["left"])


def check(text):
    """That a text is of SCHEMA; written out, so that the test needs no package."""
    value = json.loads(text)
    assert list(value) in ([*SCHEMA["required"]], [*SCHEMA["required"], "node"]), value
    assert 1 <= len(value["name"]) <= 12
    assert type(value["age"]) is int and 0 <= value["age"] <= 150
    assert 0 <= value["share"] < 1
    assert value["color"] in ("red", "green", None)
    assert re.fullmatch("[A-Z]{2}-[0-9]{3}", value["code"])
    time.strptime(value["day"], "%Y-%m-%d")
    assert 1 <= len(value["tags"]) <= 3 and all(len(t) <= 4 for t in value["tags"])
    if "node" in value:
        check_node(value["node"])


class StructuredOutputs(ApiTest):
    CONFIG = SMALL
    PATHS = ("/v1/completions", "/v1/chat/completions")

    def body(self, path, **fields):
        prompt = {"messages": [{"role": "user", "content": "Hello"}]} if "chat" in path else {"prompt": "Hello"}
        return {"temperature": 1.0, "max_tokens": 600, **prompt, **fields}

    def texts(self, path, **fields):
        """(text, finish_reason) of each choice."""
        status, _, body = self.post(path, self.body(path, **fields))
        self.assertEqual(status, 200, body)
        return [(c["message"]["content"] if "chat" in path else c["text"], c["finish_reason"]) for c in body["choices"]]

    def test_schema(self):
        formats = ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}},
                   {"structured_outputs": {"json": SCHEMA}}, {"guided_json": json.dumps(SCHEMA)})
        ended = 0
        for path in self.PATHS:
            for fields in formats:
                for text, reason in self.texts(path, n=8, seed=1, **fields):
                    if reason == "stop":
                        check(text)
                        ended += 1
        self.assertGreater(ended, 40)

    def test_regex_choice_and_grammar(self):
        for path in self.PATHS:
            for text, reason in self.texts(path, n=8, seed=3, structured_outputs={"regex": "(ab|[0-9]{2,3}|é€){2,4}\\.(x|y)?"}):
                self.assertEqual(reason, "stop")
                self.assertRegex(text, "^(ab|[0-9]{2,3}|é€){2,4}\\.(x|y)?$")
            for text, reason in self.texts(path, n=8, seed=3, guided_choice=["yes", "yesterday", "no"]):
                self.assertEqual((reason, text in ("yes", "yesterday", "no")), ("stop", True))
            grammar = 'root ::= "(" item{1,3} ")"\nitem ::= [a-c] | root'
            for text, reason in self.texts(path, n=8, seed=3, guided_grammar=grammar):
                self.assertTrue(reason == "length" or re.fullmatch("[abc()]+", text) and text.count("(") == text.count(")"), text)

    def test_json_object(self):
        ended = 0
        for seed in range(4):
            for text, reason in self.texts(self.PATHS[1], n=4, seed=seed, response_format={"type": "json_object"}):
                if reason == "stop":
                    self.assertIsInstance(json.loads(text), dict)
                    ended += 1
        self.assertGreater(ended, 0)

    def test_streams_give_the_same(self):
        for path in self.PATHS:
            fields = {"seed": 5, "structured_outputs": {"json": SCHEMA}, "max_tokens": 600, "temperature": 1.0, "ignore_eos": False}
            prompt = {k: v for k, v in self.body(path).items() if k in ("messages", "prompt")}
            events = self.events(path, **prompt, **fields)
            text = "".join(e["choices"][0]["delta"].get("content") or "" if "chat" in path else e["choices"][0]["text"] for e in events)
            whole, reason = self.texts(path, **fields)[0]
            self.assertEqual(text, whole)
            if reason == "stop":
                check(text)

    def test_beside_others(self):
        """Neighbours do not change an answer, with a form or without."""
        kinds = [{"structured_outputs": {"json": SCHEMA}}, {}, {"guided_regex": "[0-9]{20}"}, {"logit_bias": {"65": 1.5}, "max_tokens": 40}]
        alone = [self.texts(self.PATHS[0], seed=9, **kind) for kind in kinds]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            jobs = [(i, pool.submit(self.texts, self.PATHS[0], seed=9, **kinds[i])) for _ in range(6) for i in range(len(kinds))]
            for i, job in jobs:
                self.assertEqual(job.result(), alone[i])

    def test_greedy_with_logprobs(self):
        status, _, body = self.post("/v1/completions", self.body("", temperature=0, logprobs=2, guided_regex="[0-9]{3}"))
        self.assertEqual(status, 200, body)
        self.assertRegex(body["choices"][0]["text"], "^[0-9]{3}$")

    def test_min_tokens_and_ignored_ends(self):
        for fields in ({"min_tokens": 50}, {"ignore_eos": True, "max_tokens": 50}):
            for text, _ in self.texts(self.PATHS[0], guided_choice=["a", "bc"], **fields):
                self.assertIn(text, ("a", "bc"))

    def test_a_client_that_leaves(self):
        import http.client
        from api_server import KEY
        for _ in range(5):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            body = json.dumps({"prompt": "Hello", "max_tokens": 900, "stream": True, "structured_outputs": {"regex": "[a-z]{800}"}})
            connection.request("POST", "/v1/completions", body, {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"})
            connection.getresponse().read(200)
            connection.close()
        for _ in range(100):
            if self.get("/load")[2]["server_load"] == 0:
                break
            time.sleep(0.05)
        self.assertEqual(self.get("/load")[2]["server_load"], 0)
        self.assertEqual(self.texts(self.PATHS[0], guided_choice=["still here"])[0][0], "still here")

    def test_tools(self):
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {
                    "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                    "required": ["city", "days"]}}},
                 {"type": "function", "function": {"name": "now"}}]
        path = self.PATHS[1]
        for seed in range(4):
            _, _, body = self.post(path, self.body(path, tools=tools, seed=seed, tool_choice={"type": "function", "function": {"name": "weather"}}))
            call = body["choices"][0]["message"]["tool_calls"][0]["function"]
            arguments = json.loads(call["arguments"])
            self.assertEqual((call["name"], arguments["city"] in ("Paris", "Rome"), 1 <= arguments["days"] <= 9), ("weather", True, True))
            _, _, body = self.post(path, self.body(path, tools=tools[:1], seed=seed, tool_choice="required", parallel_tool_calls=False))
            self.assertEqual(body["choices"][0]["finish_reason"], "tool_calls")
            self.assertEqual(len(body["choices"][0]["message"]["tool_calls"]), 1)

    def test_hostile_forms_are_answered_soon(self):
        deep = {"type": "object", "properties": {"a": {}}}
        for _ in range(25):
            deep = {"type": "array", "items": deep}
        cases = [({"guided_regex": "(a+)+$"}, 200), ({"guided_regex": "(a|b|ab)*" * 50}, 200), ({"guided_regex": "((a{1000}){1000}){1000}"}, 200),
                 ({"guided_regex": "a{1000000}"}, 400), ({"guided_regex": "[^\\s\\S]"}, 400), ({"guided_json": deep}, 200),
                 ({"guided_json": {"enum": list(range(100000))}}, 400), ({"guided_json": {"type": "integer", "minimum": 3, "maximum": 2}}, 400),
                 ({"guided_json": {"type": "string", "pattern": "(a+)+$"}}, 200), ({"guided_json": {"$ref": "#"}}, 400),
                 ({"guided_grammar": "root ::= " + "x" * (1 << 20)}, 400), ({"guided_grammar": "root ::= root root | \"a\""}, 400),
                 ({"guided_grammar": "root ::= \"a\" root root | \"b\" root root | \"\""}, 200), ({"guided_choice": ["x" * 1000] * 1000}, 400),
                 ({"guided_choice": [str(i) for i in range(2000)]}, 200)]
        for fields, expected in cases:
            begin = time.monotonic()
            status, _, body = self.post("/v1/completions", self.body("", **{"max_tokens": 30, **fields}))
            self.assertEqual(status, expected, (next(iter(fields.values())), body))
            self.assertLess(time.monotonic() - begin, 10)
            if status == 400:
                self.assertTrue(body["error"]["param"].startswith(next(iter(fields))), body)


class TwoRanks(StructuredOutputs):
    FLAGS = ("-tp", 2)


class Preempted(StructuredOutputs):
    """A KV cache for about one request: the others are put off and come back."""
    FLAGS = ("--num-gpu-blocks-override", 66)


if __name__ == "__main__":
    unittest.main()
