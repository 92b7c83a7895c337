"""The `openai` package against a running server: what its users call, and the exceptions they catch."""
import asyncio
import json
import time
import unittest

from api_server import KEY, MODEL, ApiTest, need_package

openai = need_package("openai")


class OpenAiPackage(ApiTest):
    def setUp(self):
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key=KEY, max_retries=0)
        self.addCleanup(self.client.close)
        self.greedy = {"model": MODEL, "temperature": 0, "max_tokens": 12, "extra_body": {"ignore_eos": True}}
        self.messages = [{"role": "user", "content": "Hello"}]

    def test_models(self):
        models = self.client.models.list().data
        self.assertEqual(models[0].id, MODEL)
        self.assertEqual(self.client.models.retrieve("alias").id, "alias")

    def test_completion_and_stream(self):
        whole = self.client.completions.create(prompt="Hello", logprobs=2, **self.greedy)
        self.assertEqual(whole.usage.completion_tokens, 12)
        self.assertEqual(len(whole.choices[0].logprobs.tokens), 12)
        stream = self.client.completions.create(prompt="Hello", stream=True, stream_options={"include_usage": True}, **self.greedy)
        chunks = list(stream)
        self.assertEqual("".join(c.choices[0].text for c in chunks if c.choices), whole.choices[0].text)
        self.assertEqual(chunks[-1].usage.completion_tokens, 12)

    def test_chat_and_stream(self):
        whole = self.client.chat.completions.create(messages=self.messages, logprobs=True, top_logprobs=3, **self.greedy)
        choice = whole.choices[0]
        self.assertEqual(choice.message.role, "assistant")
        self.assertEqual(choice.finish_reason, "length")
        self.assertEqual(len(choice.logprobs.content[0].top_logprobs), 3)
        text, roles = "", []
        for chunk in self.client.chat.completions.create(messages=self.messages, stream=True, **self.greedy):
            text += chunk.choices[0].delta.content or ""
            roles.append(chunk.choices[0].delta.role)
        self.assertEqual(text, choice.message.content)
        self.assertEqual(roles[0], "assistant")

    def test_n_and_stop(self):
        answer = self.client.chat.completions.create(messages=self.messages, n=2, stop=["\u0000never"], **self.greedy)
        self.assertEqual([c.index for c in answer.choices], [0, 1])
        self.assertEqual(answer.usage.completion_tokens, 24)

    def test_structured_outputs_and_forced_tools(self):
        drawn = {"model": MODEL, "messages": self.messages, "temperature": 1, "max_tokens": 300, "seed": 2}
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}, "n": {"type": "integer"}}, "required": ["ok", "n"], "additionalProperties": False}
        answer = self.client.chat.completions.create(response_format={"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}, **drawn)
        value = json.loads(answer.choices[0].message.content)
        self.assertEqual((type(value["ok"]), type(value["n"])), (bool, int))
        text = self.client.completions.create(model=MODEL, prompt="x", extra_body={"structured_outputs": {"choice": ["left", "right"]}}).choices[0].text
        self.assertIn(text, ("left", "right"))
        tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
        named = {"type": "function", "function": {"name": "f"}}
        call = self.client.chat.completions.create(tools=tools, tool_choice=named, **drawn).choices[0].message.tool_calls[0]
        self.assertEqual((call.function.name, set(json.loads(call.function.arguments))), ("f", {"ok", "n"}))
        arguments = ""
        for chunk in self.client.chat.completions.create(tools=tools, tool_choice=named, stream=True, **drawn):
            for part in chunk.choices[0].delta.tool_calls or []:
                arguments += part.function.arguments or ""
        self.assertEqual(arguments, call.function.arguments)
        required = self.client.chat.completions.create(tools=tools, tool_choice="required", parallel_tool_calls=False, **drawn).choices[0]
        self.assertEqual((required.finish_reason, len(required.message.tool_calls)), ("tool_calls", 1))

    def test_many_at_once(self):
        async def run():
            async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key=KEY, max_retries=0) as client:
                async def one():
                    parts = []
                    async for chunk in await client.completions.create(prompt="Hello", stream=True, **self.greedy):
                        parts.append(chunk.choices[0].text)
                    return "".join(parts)
                return await asyncio.gather(*(one() for _ in range(16)))
        self.assertEqual(len(set(asyncio.run(run()))), 1)

    def test_a_cancelled_stream_is_aborted(self):
        stream = self.client.completions.create(model=MODEL, prompt="Hello", max_tokens=900, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        for _ in range(100):
            if self.get("/load")[2]["server_load"] == 0:
                break
            time.sleep(0.05)
        self.assertEqual(self.get("/load")[2]["server_load"], 0)

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.completions.create(model="other", prompt="x")
        self.assertEqual(caught.exception.param, "model")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model=MODEL, messages=self.messages, temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        self.assertIn("`temperature` must be a number", str(caught.exception))
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="wrong", max_retries=0).models.list()


if __name__ == "__main__":
    unittest.main()
