"""Random contexts for chat templates: conversations with tools, documents, thoughts, many scripts."""

WORDS = (
    'the model weather Paris 42 don\'t "quoted" <b>html</b> & a\\b é Größe 東京 мир 🙂 👩‍💻 {{x}} {%if%} \t tab '
    "<|im_start|> </think> <think> [INST] ```py Ünïcödé İstanbul ΣΑΣ ß ﬁ 'single' https://a.b/c?d=e "
    "\u00a0 \u2028"
).split(" ")


class Conversations:
    def __init__(self, rng):
        self.rng = rng
        self.plain = False  # strictly alternating roles and plain text, which every template takes

    def chance(self, p):
        return self.rng.random() < p

    def odd(self, p):
        return not self.plain and self.chance(p)

    def text(self):
        if self.chance(0.05):
            return ""
        words = [self.rng.choice(WORDS) for _ in range(self.rng.randint(1, 12))]
        text = self.rng.choice([" ", " ", "\n", "  "]).join(words)
        if self.chance(0.2):
            text = "\n " + text + " \n\n"
        if self.chance(0.15):
            text = "<think>\n" + self.rng.choice(WORDS) + "\n</think>\n\n" + text
        return text

    def scalar(self):
        return self.rng.choice(
            [None, True, False, 0, 1, -7, 12345678901234, 1.0, 0.1, -2.5e-7, 1e22, "", self.text()]
        )

    def value(self, depth=0):
        kind = self.rng.random()
        if depth > 2 or kind < 0.6:
            return self.scalar()
        if kind < 0.8:
            return [self.value(depth + 1) for _ in range(self.rng.randint(0, 3))]
        return {
            self.rng.choice(["city", "unit", "n", "größe", "a b", "items"]): self.value(depth + 1)
            for _ in range(self.rng.randint(0, 3))
        }

    def arguments(self):
        return {
            self.rng.choice(["city", "unit", "count", "flag", "tags"]): self.value(1)
            for _ in range(self.rng.randint(0, 3))
        }

    def schema(self, depth=0):
        kind = self.rng.choice(["string", "integer", "number", "boolean", "array", "object"])
        schema = {"type": kind}
        if self.chance(0.1):
            schema["type"] = [kind, "null"]
        if self.chance(0.7):
            schema["description"] = self.text()
        if kind == "string" and self.chance(0.4):
            schema["enum"] = ["celsius", "fahrenheit"]
        if kind == "array" and depth < 2:
            schema["items"] = self.schema(depth + 1)
        if kind == "object" and depth < 2:
            names = self.rng.sample(["city", "unit", "days", "opts"], self.rng.randint(0, 3))
            schema["properties"] = {name: self.schema(depth + 1) for name in names}
            if names:
                schema["required"] = names[:1]
        if self.chance(0.2):
            schema["default"] = self.scalar()
        if self.chance(0.1):
            schema["nullable"] = True
        return schema

    def tool(self, i):
        properties = {name: self.schema() for name in ("city", "unit", "count")[: self.rng.randint(0, 3)]}
        function = {
            "name": f"get_tool_{i}",
            "description": self.text(),
            "parameters": {"type": "object", "properties": properties, "required": list(properties)[:1]},
        }
        if self.chance(0.2):
            function["return"] = {"type": "string", "description": self.text()}
        return {"type": "function", "function": function}

    def tool_call(self, i):
        arguments = self.arguments()
        if self.odd(0.3):
            arguments = str(arguments)
        call = {
            "id": f"call{i:05}",
            "type": "function",
            "function": {"name": f"get_tool_{self.rng.randint(0, 2)}", "arguments": arguments},
        }
        if self.odd(0.1):
            call.update(call.pop("function"))
        return call

    def content(self):
        if self.odd(0.2):
            parts = [{"type": "text", "text": self.text()} for _ in range(self.rng.randint(1, 3))]
            if self.chance(0.3):
                parts.append({"type": self.rng.choice(["image", "image_url"])})
            return parts
        return self.text()

    def assistant(self, i):
        message = {"role": "assistant", "content": self.content()}
        if self.odd(0.35):
            message["tool_calls"] = [self.tool_call(100 * i + n) for n in range(self.rng.randint(1, 2))]
            if self.chance(0.5):
                message["content"] = self.rng.choice([None, ""])
            if self.chance(0.1):
                del message["content"]
        if self.chance(0.2):
            message[self.rng.choice(["reasoning_content", "thinking"])] = self.text()
        return message

    def messages(self):
        messages = []
        if self.chance(0.5):
            messages.append(
                {
                    "role": self.rng.choice(["system"] * 9 + ["system" if self.plain else "developer"]),
                    "content": self.content(),
                }
            )
        for i in range(self.rng.randint(1, 5)):
            messages.append({"role": "user", "content": self.content()})
            if self.plain or self.chance(0.85):
                messages.append(self.assistant(i))
                while messages[-1].get("tool_calls") or (messages[-1]["role"] == "tool" and self.chance(0.3)):
                    content = self.rng.choice([self.text(), self.text(), self.arguments()])
                    messages.append(
                        {
                            "role": "tool",
                            "name": "get_tool_1",
                            "content": content,
                            "tool_call_id": f"call{100 * i:05}",
                        }
                    )
                    if self.chance(0.7):
                        messages.append(self.assistant(i))
        if self.plain and self.chance(0.5):
            messages.pop()
        if self.odd(0.05):
            self.rng.shuffle(messages)
        return messages

    def context(self):
        self.plain = self.chance(0.5)
        context = {
            "messages": self.messages(),
            "add_generation_prompt": self.chance(0.6),
            "bos_token": "<s>",
            "eos_token": "</s>",
        }
        if self.chance(0.5):
            context["tools"] = [self.tool(i) for i in range(self.rng.randint(0, 3))]
        elif self.chance(0.3):
            context["tools"] = None
        for name, values in (
            ("enable_thinking", (True, False)),
            ("date_string", ("26 Jul 2024",)),
            ("reasoning_effort", ("low", "high")),
            ("tools_in_user_message", (True, False)),
            ("thinking", (True, False)),
            ("unk_token", ("<unk>",)),
            ("documents", None),
            ("builtin_tools", (["browser"], ["python", "browser"], ["wolfram_alpha"])),
            ("model_identity", ("You are X.",)),
            ("keep_past_thinking", (True,)),
        ):
            if self.chance(0.15):
                context[name] = (
                    self.rng.choice(values)
                    if values
                    else [{"title": self.text(), "text": self.text()} for _ in range(self.rng.randint(0, 2))]
                )
        return context
