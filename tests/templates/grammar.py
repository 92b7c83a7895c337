"""Random small templates over the whole grammar, for the comparison with jinja2."""

from expressions import Expressions

CALLS = ["m('x')", "m(1, b=2)", "m()", "m(s, t, 3)", "m(a=n)", "m('x', zz=1)"]
BLOCK_FILTERS = ["upper", "trim", "replace('a', 'b')", "indent(3)|title"]


class Grammar(Expressions):
    def tag(self, body):
        return (
            "{%" + self.pick("", "", "", "-", "+") + " " + body + " " + self.pick("", "", "", "-", "+") + "%}"
        )

    def output(self):
        return "{{" + self.pick("", "", "-") + " " + self.any() + " " + self.pick("", "", "-") + "}}"

    def template(self):
        self.names, self.loops, self.functions = {}, 0, 0
        return "{% set ns = namespace(v=0, w='') %}" + self.body(0)

    def body(self, depth):
        return "".join(self.statement(depth) for _ in range(self.rng.randint(1, 3 if depth else 5)))

    def scoped(self, depth, **names):
        saved = dict(self.names)
        self.names.update(names)
        body = self.body(depth + 1)
        self.names = saved
        return body

    def statement(self, depth):
        plain = [
            self.output,
            self.output,
            self.output,
            lambda: self.pick("text", " \n  ", "\n", "a\n\n", "  ", "\tü"),
            self.assignment,
            lambda: "{#"
            + self.pick("", "-", "+")
            + " note "
            + self.pick("", "-", "+")
            + "#}"
            + self.pick("", "\n"),
        ]
        if self.loops and self.chance(0.1):
            return (
                self.tag(f"if {self.bool(2)}") + self.tag(self.pick("break", "continue")) + self.tag("endif")
            )
        if depth > 2 or self.chance(0.5):
            return self.pick(*plain)
        nested = [
            self.condition,
            self.loop,
            self.loop,
            self.recursive_loop,
            self.macro,
            self.call_block,
            self.set_block,
            self.filter_block,
            self.with_block,
            self.raw,
            self.generation,
        ]
        return self.rng.choice(nested)(depth)

    def new_name(self, kind):
        name = self.rng.choice("pqvw") + self.rng.choice("12")
        self.names[name] = kind
        return name

    def assignment(self):
        kind = self.rng.choice(["text", "int", "list", "pair", "ns"])
        if kind == "ns":
            return self.tag(f"set ns.{self.pick('v', 'w')} = {self.any(1)}")
        if kind == "pair":
            return self.tag(
                f"set {self.new_name('text')}, {self.new_name('int')} = {self.text(1)}, {self.int(1)}"
            )
        value = {"text": self.text, "int": self.int, "list": self.list}[kind](1)
        return self.tag(f"set {self.new_name(kind)} = {value}")

    def condition(self, depth):
        parts = [self.tag(f"if {self.bool()}"), self.body(depth + 1)]
        if self.chance(0.4):
            parts += [self.tag(f"elif {self.bool()}"), self.body(depth + 1)]
        if self.chance(0.6):
            parts += [self.tag("else"), self.body(depth + 1)]
        return "".join(parts) + self.tag("endif")

    def loop(self, depth):
        filtered = (
            f" if {self.pick('i', 'i is string', 'loop is defined', 'i != 1', 'ns.v != 2', self.bool(2))}"
            if self.chance(0.3)
            else ""
        )
        target, source = ("i", self.list(1)) if self.chance(0.7) else ("k, i", "d.items()")
        self.loops += 1
        body = self.scoped(depth, i="any")
        extra = self.pick(
            "",
            "",
            "{{ loop.index }}",
            "{{ loop.last }}{{ loop.first }}",
            "{{ loop.revindex }}/{{ loop.length }}",
            "{{ loop.previtem }}<",
            "{{ loop.nextitem is defined }}",
            "{{ loop.cycle('a', 'b') }}",
            "{{ loop.changed(i is string) }}",
            "{{ i }}",
            "{{ loop }}",
            "{% set ns.v = ns.v ~ '+' %}",
        )
        self.loops -= 1
        otherwise = self.tag("else") + self.body(depth + 1) if self.chance(0.3) else ""
        return self.tag(f"for {target} in {source}{filtered}") + extra + body + otherwise + self.tag("endfor")

    def recursive_loop(self, depth):
        return (
            self.tag("for i in nested recursive")
            + "{{ loop.depth }}:"
            + "{% if i is iterable %}[{{ loop(i) }}]{% else %}{{ i }}{{ loop.index }}{% endif %}"
            + self.tag("endfor")
        )

    def macro(self, depth):
        name = self.rng.choice(["m1", "m2"])
        saved, self.loops = self.loops, 0
        extra = self.pick(
            "",
            "",
            "{{ varargs }}",
            "{{ kwargs }}",
            "{% if caller %}{{ caller() }}{% endif %}",
            "{{ s }}",
            "{{ p1 }}",
        )
        body = self.scoped(depth, a="text")
        self.loops = saved
        call = self.rng.choice(CALLS).replace("m(", name + "(")
        return (
            self.tag(f"macro {name}(a, b='dflt', c=a)")
            + "{{ a }}{{ b }}"
            + extra
            + body
            + self.tag("endmacro")
            + "{{ "
            + call
            + " }}"
        )

    def call_block(self, depth):
        saved, self.loops = self.loops, 0
        body = self.scoped(depth, arg="text")
        self.loops = saved
        return (
            "{% macro outer(q) %}<{{ q }}{{ caller(1) }}>{% endmacro %}"
            + self.tag(f"call(arg, other=2) outer({self.any(1)})")
            + "{{ arg }}{{ other }}"
            + body
            + self.tag("endcall")
        )

    def set_block(self, depth):
        name = self.new_name("text")
        return (
            self.tag(f"set {name}{self.pick('', ' | upper', ' | trim | length')}")
            + self.body(depth + 1)
            + self.tag("endset")
            + "{{ "
            + name
            + " }}"
        )

    def filter_block(self, depth):
        return (
            self.tag(f"filter {self.rng.choice(BLOCK_FILTERS)}")
            + self.body(depth + 1)
            + self.tag("endfilter")
        )

    def with_block(self, depth):
        return (
            self.tag(f"with p1 = {self.text(1)}, q1 = {self.int(1)}")
            + self.scoped(depth, p1="text", q1="int")
            + self.tag("endwith")
        )

    def raw(self, depth):
        return (
            self.tag("raw").replace("+%}", "%}")
            + self.pick(" {{ x }} ", "\n{% if %}\n", "{#")
            + self.tag("endraw")
        )

    def generation(self, depth):
        saved, self.loops = self.loops, 0
        body = self.scoped(depth)
        self.loops = saved
        return self.tag("generation") + body + self.tag("endgeneration")
