"""Random expressions for the comparison with jinja2, by the type of their value: most of them render."""

TEXTS = [
    "",
    "a",
    "Hello World",
    "ab,cd,,ef",
    "  padded \n",
    "ÄÖß Straße",
    "ΑΣ ΣΑΣ.",
    "İıſ ǆ ﬁ",
    "東京🙂é",
    "it's",
    'say "x"',
    "<b>&amp;</b>",
    "line1\nline2\r\n\nline4",
    "tab\there",
    "12",
    "-3.75",
    "0x1F",
    "1_000",
    "%s-%d",
    "{}{0}",
    "\u00ad\u2028\x07",
    "hello-world (foo)",
    "aXbXc",
]
STR_METHODS = [
    "upper()",
    "lower()",
    "strip()",
    "title()",
    "capitalize()",
    "swapcase()",
    "lstrip()",
    "rstrip()",
    "strip('ae ')",
    "lstrip('a')",
    "rstrip('\\n ')",
    "replace('a', 'bb')",
    "replace('a', '', 1)",
    "replace('', '-')",
    "casefold()",
    "zfill(6)",
    "center(9, '*')",
    "ljust(7)",
    "rjust(7, '.')",
    "removeprefix('a')",
    "removesuffix('d')",
    "split('<')[0]",
    "split()|join('|')",
    "split(',')[-1]",
    "partition('l')|join('/')",
    "expandtabs(4)",
    "format('x', 1)",
    "rsplit(None, 1)[0]",
    "rpartition(',')|join('/')",
    "splitlines()|join('~')",
]
STR_FILTERS = [
    "upper",
    "lower",
    "trim",
    "title",
    "capitalize",
    "replace('l', 'L')",
    "trim('d ')",
    "indent(2)",
    "indent(2, true)",
    "indent('> ', first=true, blank=true)",
    "truncate(6)",
    "truncate(8, true)",
    "truncate(7, end='…', leeway=0)",
    "center(12)",
    "reverse",
    "escape",
    "e",
    "string",
    "striptags",
    "urlencode",
    "default('dd')",
    "d('z', true)",
    "tojson",
    "safe",
    "forceescape",
    "first",
    "last",
    "list|join('.')",
    "batch(2)|list",
    "wordcount",
    "length|string",
]
PREDICATES = [
    "defined",
    "undefined",
    "none",
    "string",
    "number",
    "integer",
    "float",
    "boolean",
    "true",
    "false",
    "mapping",
    "sequence",
    "iterable",
    "callable",
    "lower",
    "upper",
    "escaped",
    "filter",
    "test",
]
WORD_LIST_FILTERS = [
    "sort",
    "sort(case_sensitive=true)",
    "unique|list",
    "map('upper')|list",
    "map('length')|list",
    "select|list",
    "reject('upper')|list",
    "map('trim')|join('+')|list",
    "max",
    "min|list",
]
INT_LIST_FILTERS = [
    "select('odd')|list",
    "reject('gt', 2)|list",
    "map('string')|list",
    "batch(2)|list",
    "batch(3, 0)|list",
    "slice(2)|list",
    "slice(3, 'x')|list",
    "sort",
    "unique|list",
    "select('in', [1, 2])|list",
]
MESSAGE_FILTERS = [
    "map(attribute='content')|list",
    "selectattr('role', 'equalto', 'user')|list",
    "rejectattr('n')|list",
    "groupby('role')",
    "groupby('n')|list",
    "sort(attribute='n,content')",
    "map(attribute='zz', default='-')|list",
    "map('attr', 'role')|list",
    "selectattr('content')|map(attribute='n')|list",
]
ROUNDS = [
    "x|round",
    "x|round(1)",
    "2.5|round",
    "-3.14159|round(2, 'floor')",
    "n|round(-1)",
    "x|round(0, 'ceil')",
    "2.675|round(2)",
]
FORMATS = ["%s|%r", "%5s|%-5s", "%s%%%s", "%.2s,%s", "%a %s"]
SPECS = ["{:>8}|{}", "{0!r:<9}{1}", "{:^7}.{}", "{1}{0}", "{!s:*^10}{}", "{:5.2}{}"]
JSON_OPTIONS = ["", "indent=2", "ensure_ascii=true", "sort_keys=true"]
INT_CONVERSIONS = ["d", "5d", "-5d|", "05d", "x", "#o", "+d", ".3d"]
FLOAT_CONVERSIONS = ["f", ".2f", "8.3e", "g", "+.1f", "#g"]
INT_SPECS = ["d", ",", "08b", "+", "x", "#X", "_", "^9", ".2f", "e", "%", "06,"]
FLOAT_SPECS = ["", ".3", ".1", ",.2f", "012.1f", "e", "g", ".1%", "+"]
INT_PREDICATES = ["odd", "even", "divisibleby 3", "divisibleby(2)", "gt 2", "eq 1", "in xs"]
STR_PREDICATES = (
    "isdigit isalpha isupper islower isspace istitle isalnum isidentifier isprintable isnumeric".split()
)
SORTS = ["sort", "sort(reverse=true)", "unique|list", "list"]


class Expressions:
    def __init__(self, rng):
        self.rng = rng
        self.names = {}
        self.loops = 0
        self.functions = 0

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, *options):
        """One of the given values, or what one of the given functions makes."""
        option = self.rng.choice(options)
        return option() if callable(option) else option

    def context(self):
        r = self.rng
        return {
            "s": r.choice(TEXTS),
            "t": r.choice(TEXTS),
            "n": r.randint(-5, 12),
            "x": r.choice([0.5, -1.25, 1e16, 3.0, 1e-7]),
            "b": r.random() < 0.5,
            "xs": [r.randint(-3, 9) for _ in range(r.randint(0, 4))],
            "ws": [r.choice(TEXTS) for _ in range(r.randint(0, 4))],
            "none": None,
            "nested": [[1, [2]], [], [3]],
            "d": {"k": 1, "items": "shadow", "é": [1, None], "z": {"q": True}},
            "ms": [
                {"role": r.choice(["user", "system"]), "content": r.choice(TEXTS), "n": r.randint(0, 3)}
                for _ in range(r.randint(0, 3))
            ],
        }

    # Expressions by type.

    def known(self, kind):
        names = [name for name, k in self.names.items() if k == kind]
        return self.rng.choice(names) if names else None

    def literal_text(self):
        text = self.rng.choice(TEXTS)
        body = "".join(c if c not in "\\'" else "\\" + c for c in text)
        body = body.replace("\n", "\\n").replace("\r", "\\r").replace("\x07", "\\x07")
        return "'" + body + "'"

    def text(self, depth=0):
        if depth > 2:
            return self.pick("s", "t", self.literal_text, lambda: self.known("text") or "s")
        return self.pick(
            "s",
            "t",
            self.literal_text,
            lambda: self.known("text") or "t",
            lambda: f"{self.text(depth + 1)}.{self.rng.choice(STR_METHODS)}",
            lambda: f"({self.text(depth + 1)}).{self.rng.choice(STR_METHODS)}",
            lambda: f"({self.text(depth + 1)})|{self.rng.choice(STR_FILTERS)}|string",
            lambda: f"({self.text(depth + 1)} ~ {self.any(depth + 1)})",
            lambda: f"({self.text(depth + 1)} + {self.text(depth + 1)})",
            lambda: f"({self.text(depth + 1)})[{self.slice()}]",
            lambda: f"({self.any(depth + 1)})|string",
            lambda: f"({self.any(depth + 1)})|tojson({self.rng.choice(JSON_OPTIONS)})",
            lambda: f"({self.list(depth + 1)})|join({self.literal_text()})",
            lambda: f"('{self.rng.choice(FORMATS)}' % ({self.any(depth + 1)}, {self.any(depth + 1)}))",
            lambda: f"'{self.rng.choice(SPECS)}'.format({self.text(depth + 1)}, {self.any(depth + 1)})",
            lambda: f"'%{self.rng.choice(INT_CONVERSIONS)}' % ({self.int(depth + 1)})",
            lambda: f"'%{self.rng.choice(FLOAT_CONVERSIONS)}' % ({self.number(depth + 1)})",
            lambda: f"'{{:{self.rng.choice(INT_SPECS)}}}'.format({self.int(depth + 1)})",
            lambda: f"'{{:{self.rng.choice(FLOAT_SPECS)}}}'.format({self.number(depth + 1)})",
            lambda: f"({self.text(depth + 1)} if {self.bool(depth + 1)} else {self.text(depth + 1)})",
            lambda: f"({self.text(depth + 1)} * {self.rng.randint(-1, 3)})",
            lambda: "ms[0].content|default('none')",
            lambda: "d['items']",
            lambda: "d.get('é')|string",
        )

    def int(self, depth=0):
        if depth > 2:
            return self.pick("n", lambda: str(self.rng.randint(0, 20)), lambda: self.known("int") or "n")
        return self.pick(
            "n",
            lambda: str(self.rng.randint(0, 99)),
            lambda: self.known("int") or "n",
            "d.k",
            "0x1f",
            "1_000",
            lambda: f"({self.int(depth + 1)} {self.pick('+', '-', '*', '//', '%')} {self.int(depth + 1)})",
            lambda: f"(-{self.int(depth + 1)})",
            lambda: f"({self.int(depth + 1)} ** {self.rng.randint(0, 3)})",
            lambda: f"({self.any(depth + 1)})|int",
            lambda: f"({self.text(depth + 1)})|int(7, 16)",
            lambda: f"({self.text(depth + 1)})|length",
            lambda: f"({self.list(depth + 1)})|length",
            lambda: f"({self.text(depth + 1)}).{self.pick('count', 'find', 'rfind')}('l')",
            lambda: f"(xs|{self.pick('sum', 'max', 'min', 'first', 'last')})|int",
            lambda: f"({self.int(depth + 1)})|abs",
        )

    def number(self, depth=0):
        return self.pick(
            "x",
            lambda: self.int(depth),
            "1.5",
            "2e3",
            lambda: f"({self.int(depth + 1)} / 4)",
            lambda: f"({self.any(depth + 1)})|float",
            lambda: f"(x * {self.int(depth + 1)})",
            lambda: f"(x % {self.pick('3', '-0.7')})",
            lambda: f"(x // {self.pick('3', '0.7')})",
            lambda: f"({self.rng.choice(ROUNDS)})",
        )

    def bool(self, depth=0):
        if depth > 2:
            return self.pick("b", "true", "False", "not b")
        return self.pick(
            "b",
            "true",
            "none",
            lambda: f"not {self.any(depth + 1)}",
            lambda: f"({self.any(depth + 1)} {self.pick('and', 'or')} {self.any(depth + 1)})",
            lambda: f"{self.any(depth + 1)} is {self.pick('', 'not ')}{self.rng.choice(PREDICATES)}",
            lambda: f"{self.int(depth + 1)} is {self.rng.choice(INT_PREDICATES)}",
            lambda: f"({self.int(depth + 1)} {self.pick('<', '>=', '==', '!=')} {self.number(depth + 1)})",
            lambda: f"({self.int(depth + 1)} < {self.int(depth + 1)} <= {self.int(depth + 1)})",
            lambda: f"({self.text(depth + 1)} {self.pick('<', '==', 'in', 'not in')} {self.text(depth + 1)})",
            lambda: f"({self.any(depth + 1)} {self.pick('==', '!=')} {self.any(depth + 1)})",
            lambda: f"({self.any(depth + 1)} {self.pick('in', 'not in')} {self.list(depth + 1)})",
            lambda: f"({self.text(depth + 1)}).{self.pick('startswith', 'endswith')}({self.pick(self.literal_text, '(s, t)')})",
            lambda: f"({self.text(depth + 1)}).{self.rng.choice(STR_PREDICATES)}()",
        )

    def list(self, depth=0):
        if depth > 2:
            return self.pick("xs", "ws", "[1, 'a']", lambda: self.known("list") or "xs")
        return self.pick(
            "xs",
            "ws",
            "nested",
            lambda: self.known("list") or "ws",
            "range(4)|list",
            "range(5, 0, -2)",
            "()",
            "(1,)",
            "d.keys()|list",
            lambda: f"[{self.any(depth + 1)}, {self.any(depth + 1)}]",
            lambda: f"({self.any(depth + 1)}, {self.any(depth + 1)})",
            lambda: f"({self.list(depth + 1)})[{self.slice()}]",
            lambda: f"({self.text(depth + 1)}).split({self.pick('', ',', 1, None)!r})".replace("('')", "()"),
            lambda: f"({self.list(depth + 1)})|list",
            lambda: f"({self.list(depth + 1)})|reverse|list",
            lambda: f"(xs + {self.pick('xs', '[9]')})|{self.rng.choice(SORTS)}",
            lambda: f"ws|{self.rng.choice(WORD_LIST_FILTERS)}",
            lambda: f"xs|{self.rng.choice(INT_LIST_FILTERS)}",
            lambda: f"ms|{self.rng.choice(MESSAGE_FILTERS)}",
            lambda: f"d|{self.pick('dictsort', 'items|list', 'list', 'dictsort(reverse=true)')}",
            "d.items()|list",
            "d.values()|list",
        )

    def dict(self, depth=0):
        return self.pick(
            "d",
            "d.z",
            "{}",
            lambda: f"{{'a': {self.any(depth + 1)}, {self.pick('1', 'true', 'none', 's')}: {self.any(depth + 1)}}}",
            lambda: f"dict(a={self.any(depth + 1)})",
            "dict(d, k=2)",
            "ms[0]|default({})",
            "d.copy()",
        )

    def any(self, depth=0):
        if depth > 2:
            return self.pick("s", "n", "x", "b", "xs", "none", "1", "'q'")
        return self.pick(
            self.text,
            self.int,
            self.number,
            self.bool,
            self.list,
            self.dict,
            lambda: self.text(depth + 1),
            lambda: self.int(depth + 1),
            lambda: self.bool(depth + 1),
            lambda: self.list(depth + 1),
            "missing",
            "none",
            "d.missing",
            "d['k']",
            "xs[0]",
            "xs[-9]",
            "s[1]",
            "s[-1]",
            "nested[0][1]",
            "ms[0]['role']",
            lambda: f"({self.any(depth + 1)})|default({self.any(depth + 1)})",
            lambda: f"({self.any(depth + 1)} if {self.bool(depth + 1)})",
            "ns.v",
            "namespace(v=1).v",
            "d.keys()",
            "d.items()",
            "range(3)",
            "x|round(1)",
            "x|round|int",
        )

    def slice(self):
        bound = lambda: self.pick("", "", "0", "1", "2", "-1", "-2", "99", "n")
        return f"{bound()}:{bound()}{self.pick('', '', ':', ':2', ':-1', ':-2')}"
