"""The reference renderer: Python's jinja2, set up as transformers sets it up for chat templates."""

import json
from datetime import datetime

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox
import jinja2.utils


class RaisedByTemplate(jinja2.exceptions.TemplateError):
    """What raise_exception() raises: its message must reach the client as it is."""


class GenerationTag(jinja2.ext.Extension):
    """{% generation %}: renders its body in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render_body(self, caller):
        return caller()


class TemplateDict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


class TemplateNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        attributes = dict(*args[1:], **kwargs)
        for name in attributes:
            TemplateNamespace._check(name)
        jinja2.utils.Namespace.__init__(args[0], attributes)

    def __setitem__(self, name, value):
        TemplateNamespace._check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"namespace attribute {name}")


def raise_exception(message):
    raise RaisedByTemplate(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def make_environment():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals.update(
        raise_exception=raise_exception,
        dict=TemplateDict(),
        namespace=TemplateNamespace,
        strftime_now=lambda format: datetime.now().strftime(format),
    )
    return environment


class Reference:
    def __init__(self):
        self.environment = make_environment()
        self.source = self.compiled = None

    def render(self, source, context):
        """{"text"}, {"error"} or, for an error that the template raised itself, {"raised"}."""
        try:
            if source != self.source:
                self.source = None
                self.compiled = self.environment.from_string(source)
                self.source = source
            # A copy through JSON: both sides see the same types.
            return {"text": self.compiled.render(**json.loads(json.dumps(context)))}
        except RaisedByTemplate as e:
            return {"raised": str(e)}
        except RecursionError:
            return {"error": "recursion"}
        except Exception as e:  # whatever else the template does wrong, in any of Python's ways
            return {"error": f"{type(e).__name__}: {e}"}
