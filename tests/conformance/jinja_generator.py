"""Random chats and random templates of the subset of Jinja that chat templates use."""
import random

WORDS = ["user", "assistant", "a", "B", "Hello there", "x y", "", " ", "\n", "  padded\t", "naïve", "日本語", "é", "ß", "<b>&", "it's",
         'say "hi"', "back\\slash", "</think>", "tool", "1", "-7", "3.5", "0x1f", "True", "None", "a,b,c", "A-b c", "line\nnext", "🙂"]
ROLES = ["system", "user", "assistant", "tool"]


def text(rng, longest=6):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(longest))) if rng.random() < 0.8 else rng.choice(WORDS)


def tool(rng):
    names = rng.sample(["city", "unit", "n", "größe"], rng.randrange(1, 4))
    properties = {n: {"type": rng.choice(["string", "integer", ["string", "null"]]), "description": text(rng)} for n in names}
    function = {"name": rng.choice(["get_weather", "search", "add"]), "description": text(rng),
                "parameters": {"type": "object", "properties": properties, "required": names[:1]}}
    return {"type": "function", "function": function}


def tool_call(rng):
    arguments = {rng.choice(["city", "n", "q"]): rng.choice([text(rng), 3, 2.5, True, None, [1, "b"]]) for _ in range(rng.randrange(3))}
    call = {"function": {"name": rng.choice(["get_weather", "search"]), "arguments": arguments}}
    if rng.random() < 0.7:
        call |= {"type": "function", "id": rng.choice(["call_1", "abcdefghi", "123456789"])}
    return call


def message(rng, role, in_parts=False):
    said = text(rng, 12)
    if role == "assistant" and rng.random() < 0.2:
        said = "<think>\n" + text(rng) + "\n</think>\n\n" + said
    made = {"role": role, "content": said}
    if in_parts:
        made["content"] = [{"type": "text", "text": text(rng)} for _ in range(rng.randrange(1, 3))]
    if role == "assistant" and rng.random() < 0.08:
        made["tool_calls"] = [tool_call(rng) for _ in range(rng.randrange(1, 3))]
        if rng.random() < 0.5:
            made["content"] = rng.choice([None, ""])
    if role == "assistant" and rng.random() < 0.1:
        made["reasoning_content"] = text(rng)
    if role == "tool":
        made |= {"name": "search", "tool_call_id": "123456789"}
    return made


def conversation(rng):
    """A context as apply_chat_template gives it to a template; mostly a sensible one."""
    in_parts = rng.random() < 0.1
    messages = [message(rng, "system", in_parts)] if rng.random() < 0.4 else []
    for _ in range(rng.randrange(1, 5)):
        messages.append(message(rng, "user", in_parts))
        messages.append(message(rng, "assistant", in_parts))
        if rng.random() < 0.15:
            messages += [message(rng, "tool"), message(rng, "assistant")]
    if rng.random() < 0.4:
        messages.pop()
    if rng.random() < 0.05:
        rng.shuffle(messages)
    context = {"messages": messages, "tools": [tool(rng) for _ in range(rng.randrange(1, 3))] if rng.random() < 0.25 else None,
               "documents": None, "add_generation_prompt": rng.random() < 0.5,
               "bos_token": "<s>", "eos_token": "</s>"}
    for name, values in (("enable_thinking", [True, False]), ("date_string", ["1 May 2025"]), ("tools_in_user_message", [False]),
                         ("add_vision_id", [True]), ("reasoning_effort", ["low", "high"]), ("xml_tools", [[]]),
                         ("custom_instructions", ["Be brief."]), ("preserve_thinking", [True])):
        if rng.random() < 0.15:
            context[name] = rng.choice(values)
    return context


SMALL = {"messages": [{"role": "user", "content": "Hi <b> "}, {"role": "assistant", "content": "Hello\n"}, {"role": "user", "content": "日本 ok"}],
         "n": 3, "f": 2.5, "s": "Some text, here", "empty": [], "none": None, "flag": True, "d": {"b": 1, "a": "x", "c": [1, 2]},
         "l": [3, 1, 2], "words": ["pear", "Apple", "fig"], "deep": {"list": [{"k": "v", "n": 1}, {"k": "w", "n": 2}, {"n": 3}]}, "eos_token": "</s>"}

# Names, literals and what can be done with a value, by its kind: t text, n number, b truth, l list, d dict, a anything.
NAMES = {"t": ["s", "eos_token", "words[0]", "messages[0].content", "messages[-1]['role']", "d.a"], "n": ["n", "f", "l[0]", "d['b']", "l|length"],
         "b": ["flag", "missing is defined", "n > 2", "not empty"], "l": ["l", "words", "empty", "messages", "deep.list", "d.c"], "d": ["d", "deep", "messages[0]", "deep.list[0]"],
         "a": ["x", "y", "item", "ns.q", "none", "missing", "messages", "loop", "m0"]}
LITERALS = {"t": ["'a'", "'it\\'s'", '"q\\n"', "'\\u00e9'", "''", "'a' 'b'", "' pad '", "'x,y,,z'", "'A-b c'", "'12'", "'日本'", "'%s!'", "'<&>'", "'one\\ntwo\\n\\nthree'"],
            "n": ["0", "1", "-2", "7", "2.5", "1e3", "0.1", "1_000", "0x1F", "1.5e-7", "1e22", "-0.0", "10 ** 3", "true"], "b": ["true", "False"],
            "l": ["[]", "[1, 2]", "['b', 'a', 'B', 'a']", "(1, 2)", "()", "(1,)", "range(4)", "range(2, 9, 3)", "[[1, 'a'], [0, 'b']]", "[none, 0, '', 'k']", "d.items()", "d.values()|list"],
            "d": ["{}", "{'k': 1, 'j': [2]}", "dict(a=1)", "{1: 'i', 'é': none}", "dict([('q', 2)])"], "a": ["none", "()", "1", "'a'"]}
# What takes a kind and gives one.
FILTERS = {"t": {"t": ["trim", "upper", "lower", "capitalize", "title", "string", "replace('e', 'E')", "replace('', '-')", "replace('l', 'LL', 1)", "indent", "indent(2)", "indent(2, true)",
                       "indent('> ', blank=true)", "truncate(9)", "truncate(9, true, '..', 0)", "center(20)", "tojson", "reverse", "first", "last", "trim('aS ')", "default('z')", "e", "safe", "format(1)"],
                 "n": ["length", "int", "float", "wordcount", "int(7)", "float(1.5)", "count"], "l": ["list", "map('upper')|list", "sort", "unique|list", "batch(3)|list"]},
           "n": {"n": ["round", "round(1)", "round(1, 'floor')", "round(2, 'ceil')", "abs", "int", "float"], "t": ["string", "tojson", "default('z')"]},
           "b": {"t": ["string", "tojson"], "n": ["int"]},
           "l": {"t": ["join", "join(', ')", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))", "map('string')|join('/')", "map(attribute='k', default='-')|join",
                       "join('-', attribute='role')", "string"],
                 "n": ["length", "count", "sum", "sum(attribute='n')"], "a": ["first", "last", "min", "max", "random_thing"],
                 "l": ["list", "sort", "sort(reverse=true)", "sort(attribute='n')", "sort(case_sensitive=true)", "unique|list", "reverse|list", "select|list", "reject('none')|list", "map('length')|list",
                       "map(attribute='k')|list", "selectattr('role', 'equalto', 'user')|list", "selectattr('k')|list", "rejectattr('role', 'eq', 'user')|list", "selectattr('k', 'defined')|map(attribute='n')|list",
                       "batch(2)|list", "batch(2, 'f')|list", "slice(2)|list", "slice(3, 'f')|list", "map('upper')|list", "map('default', 'q')|list", "select('string')|list", "reject('in', [1, 2])|list", "default([], true)"]},
           "d": {"t": ["tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "string", "join"], "n": ["length"], "l": ["items|list", "dictsort", "dictsort(by='value')", "dictsort(reverse=true)", "list", "sort"]},
           "a": {"a": ["default('z')", "default('z', true)", "d", "list", "first"], "t": ["string", "tojson", "trim", "upper"], "n": ["length", "int"], "b": ["groups"]}}
METHODS = {"t": {"t": ["strip()", "lstrip()", "rstrip('t')", "strip('Hoe ')", "upper()", "lower()", "title()", "capitalize()", "replace('e', '')", "replace('t', 'T', 1)", "join(words)", "join(['a', 'b'])",
                       "removeprefix('S')", "removesuffix('e')", "ljust(12, '.')", "rjust(8)", "center(9, '*')", "zfill(6)", "format(1, 2)", "split('e')[-1]", "split(',')[0].strip()"],
                 "n": ["find('e')", "rfind('e')", "count('e')", "index('e')"], "b": ["startswith('S')", "endswith(('e', 'x'))", "isdigit()", "isupper()", "islower()", "isalpha()", "isalnum()", "isspace()"],
                 "l": ["split()", "split(',')", "split(' ', 1)", "rsplit('e', 1)", "splitlines()", "partition(',')", "rpartition(' ')", "rsplit(maxsplit=1)"]},
           "d": {"a": ["get('a')", "get('zz', 'dflt')", "get('k')", "a", "k", "b", "items", "nothing", "__class__"], "l": ["items()|list", "keys()|list", "values()|list", "items()"], "d": ["copy()"]},
           "l": {"n": ["count(1)", "index(1)"], "a": ["append(4)", "nothing", "nothing()", "0", "pop()"]}, "n": {"a": ["nothing"]}, "b": {}, "a": {"a": ["role", "content", "k", "q", "first", "index0", "last", "previtem", "nextitem", "length"]}}
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence", "callable", "true", "false", "not defined", "not none", "not string",
         "upper", "lower", "eq 3", "equalto('x')", "ne 1", "sameas true", "escaped", "in ['a', 3, none]"]
NUMBER_TESTS = ["odd", "even", "divisibleby(2)", "divisibleby 3", "in [1, 2, 3]", "gt 2", "lt(5)", "ge 3", "le 3"]
SPACES = ["", " ", "\n", "  ", "text", " text\n", "\n  ", "é", "\n\n", "<|im_end|>"]


class Templates:
    def __init__(self, rng):
        self.rng, self.macros, self.loops = rng, [], 0

    def choose(self, *weighted):
        total = sum(weight for weight, _ in weighted)
        at = self.rng.random() * total
        for weight, make in weighted:
            at -= weight
            if at <= 0:
                return make()
        return weighted[-1][1]()

    def kind(self):
        return self.rng.choices("tnblda", (6, 4, 2, 4, 2, 2))[0]

    def expr(self, depth=2, kind=None):
        """Mostly of that kind; now and then of another, which may be an error."""
        rng = self.rng
        kind = self.kind() if kind is None or rng.random() < 0.02 else kind
        if depth <= 0:
            return rng.choice(NAMES[kind] if rng.random() < 0.6 else LITERALS[kind])
        e = lambda wanted: self.expr(depth - 1, wanted)
        own = {"t": [(3, lambda: f"{e('t')} + {e('t')}"), (3, lambda: f"{e('t')} ~ {e(None)}"), (1, lambda: f"{self.atom(depth, 't')} * 2"), (1, lambda: f"'%s-%s' % ({e(None)}, {e('n')})"),
                     (1, lambda: f"'%05.1f|%-4d|%x' % ({rng.choice(['n', '2.25', '-7'])}, n, 255)"), (1, lambda: "strftime_now('%d %b %Y')"),
                     (2, lambda: f"{self.atom(depth, 't')}[{rng.choice(['1:', ':-1', '::-1', '::2', ':2', '1:3', '-2:', '0', '-1'])}]"),
                     (1, lambda: f"{rng.choice(self.macros)}({rng.choice(['', e(None), 'p=' + e(None), e(None) + ', ' + e(None)])})" if self.macros else "s")],
               "n": [(4, lambda: f"{e('n')} {rng.choice(['+', '-', '*', '+', '-'])} {e('n')}"), (1, lambda: f"{e('n')} {rng.choice(['/', '//', '%'])} {rng.choice(['2', '3', '-2', '0.5', e('n')])}"),
                     (1, lambda: f"-{self.atom(depth, 'n')}"), (1, lambda: f"{self.atom(depth, 'n')} ** 2"), (1, lambda: "loop.index" if self.loops else "n")],
               "b": [(3, lambda: f"{e(kind_)} {rng.choice(['==', '!=', '<', '>='])} {e(kind_)}" if (kind_ := rng.choice("tn")) else ""), (2, lambda: f"{e(None)} in {e('l')}"), (1, lambda: f"{e('t')} not in {e('t')}"),
                     (2, lambda: f"{self.atom(depth, None)} is {rng.choice(TESTS)}"), (1, lambda: f"{self.atom(depth, 'n')} is {rng.choice(NUMBER_TESTS)}"), (1, lambda: f"not {e(None)}"),
                     (2, lambda: f"{e(None)} {rng.choice(['and', 'or'])} {e(None)}"), (1, lambda: f"{e('n')} < {e('n')} <= {e('n')}"), (1, lambda: f"{e('d')} == {e('d')}")],
               "l": [(2, lambda: f"[{e(None)}, {e(None)}]"), (1, lambda: f"({e(None)}, {e(None)})"), (1, lambda: f"{self.atom(depth, 'l')} + {self.atom(depth, 'l')}"),
                     (2, lambda: f"{self.atom(depth, 'l')}[{rng.choice(['1:', ':-1', '::-1', '::2', ':2'])}]")],
               "d": [(2, lambda: f"{{{rng.choice(['1', repr('k'), 's'])}: {e(None)}, 'z': {e(None)}}}")],
               "a": [(2, lambda: f"{self.atom(depth, 'l')}[{rng.choice(['0', '-1', '5', '1'])}]"), (2, lambda: f"{self.atom(depth, 'd')}[{rng.choice(['1', repr('a'), repr('k'), repr('items'), 's'])}]"),
                     (1, lambda: f"{e(None)} {rng.choice(['and', 'or'])} {e(None)}"), (0.2, lambda: "raise_exception('no ' ~ n)"), (0.3, lambda: rng.choice(["namespace(q=1).q", "joiner(', ')()", "range"]))]}[kind]
        return self.choose((5, lambda: self.expr(0, kind)), (4, lambda: self.applied(depth, kind)), *own, (1, lambda: f"({e(kind)})"),
                           (1, lambda: f"({e(kind)} if {e('b')} else {e(kind)})"), (0.1, lambda: f"({e(kind)} if {e('b')})"))

    def applied(self, depth, kind):
        """A filter or a method that gives the kind."""
        ways = [(sign, taken, way) for sign, table in (("|", FILTERS), (".", METHODS)) for taken, made in table.items() for way in made.get(kind, [])]
        sign, taken, way = self.rng.choice(ways)
        return f"{self.atom(depth, taken)}{sign}{way}"

    def atom(self, depth, kind):
        made = self.expr(depth - 1, kind)
        return made if made.replace(".", "").isidentifier() or self.rng.random() < 0.05 else f"({made})"

    def tag(self, inside):
        left, right = (self.rng.choice(["", "", "-", "-"] if inside == "raw" else ["", "", "-", "-", "+"]) for _ in range(2))
        return f"{{%{left} {inside} {right}%}}"

    def target(self):
        return self.rng.choice(["x", "y", "item", "ns.q", "z"] if self.rng.random() < 0.97 else ["x, y", "loop", "missing.q", "n", "messages"])

    def body(self, depth):
        return "".join(self.statement(depth) + self.rng.choice(SPACES) for _ in range(self.rng.choice((1, 1, 2, 3))))

    def statement(self, depth):
        rng = self.rng
        if depth <= 0:
            return self.output()
        return self.choose((6, self.output), (4, lambda: self.tag(f"set {self.target()} = {self.expr()}")),
                           (4, lambda: self.if_(depth)), (4, lambda: self.for_(depth)), (1, lambda: self.macro(depth)),
                           (0.7, lambda: self.tag(f"set {rng.choice(['x', 'y', 'ns.q', 'x | upper', 'y | trim | length'])}") + self.body(depth - 1) + self.tag("endset")),
                           (0.5, lambda: self.tag(f"with x = {self.expr()}, w = {self.expr(1)}") + self.body(depth - 1) + self.tag("endwith")),
                           (0.5, lambda: self.tag(f"filter {rng.choice(['upper', 'trim', 'indent(1)', 'length'])}") + self.body(depth - 1) + self.tag("endfilter")),
                           (0.6, lambda: self.generation(depth)), (0.6, lambda: self.call(depth)),
                           (0.5, lambda: "{#" + rng.choice(["", "-"]) + " {% note %} " + rng.choice(["", "-"]) + "#}" + rng.choice(SPACES)),
                           (0.3, lambda: self.tag("raw") + "{{ raw }} {% x %}" + self.tag("endraw")),
                           (0.5 if self.loops else 0.01, lambda: self.tag(rng.choice(["break", "continue"]))),
                           (0.02, lambda: self.tag(rng.choice(["endif", "do x", "unknown", "else", "block a", "include 'x'"]))))

    def output(self):
        left, right = (self.rng.choice(["", "", "-"]) for _ in range(2))
        return self.rng.choice(SPACES) + f"{{{{{left} {self.expr()} {right}}}}}"

    def if_(self, depth):
        made = self.tag(f"if {self.expr(2, 'b')}") + self.body(depth - 1)
        if self.rng.random() < 0.3:
            made += self.tag(f"elif {self.expr(1, 'b')}") + self.body(depth - 1)
        if self.rng.random() < 0.4:
            made += self.tag("else") + self.body(depth - 1)
        return made + self.tag("endif")

    def for_(self, depth):
        over = self.rng.choice(["messages", "l", "words", "d", "d.items()", "range(3)", "empty", "s", "deep.list", self.expr(1, "l")])
        names = "k, v" if over == "d.items()" else self.rng.choice(["item", "x", "message", "item"])
        test = f" if {self.expr(1, 'b')}" if self.rng.random() < 0.15 else ""
        self.loops += 1
        body = self.body(depth - 1)
        if self.rng.random() < 0.5:
            body += "{{ loop." + self.rng.choice(["index", "index0", "first", "last", "length", "revindex", "previtem", "nextitem", "cycle('a', 'b')", "changed(item)", "depth"]) + " }}"
        self.loops -= 1
        other = self.tag("else") + self.body(depth - 1) if self.rng.random() < 0.2 else ""
        return self.tag(f"for {names} in {over}{test}") + body + other + self.tag("endfor")

    def alone(self, depth):
        """A body that is a function: no loop can be left in it, mostly."""
        loops, self.loops = self.loops, 0
        made = self.body(depth)
        self.loops = loops
        return made

    def macro(self, depth):
        name = f"m{len(self.macros)}"
        signature = self.rng.choice(["", "p", "p, q=1", "p='d', q=p", "q=x"])
        body = self.alone(depth - 1) + self.rng.choice(["{{ p }}", "{{ q }}", "{{ varargs }}", "{{ kwargs }}", "{{ caller() }}", "{{ caller(1) if caller is defined }}", ""])
        self.macros.append(name)
        return self.tag(f"macro {name}({signature})") + body + self.tag("endmacro")

    def generation(self, depth):
        return self.tag("generation") + self.alone(depth - 1) + self.tag("endgeneration")

    def call(self, depth):
        if not self.macros:
            return self.output()
        return self.tag(f"call{self.rng.choice(['', '(c)'])} {self.rng.choice(self.macros)}({self.expr(1)})") + self.alone(depth - 1) + self.tag("endcall")

    def template(self):
        made = "{%- set ns = namespace(q=0) %}{% set x, y, item = 1, 'why', [2] %}" if self.rng.random() < 0.95 else ""
        for _ in range(self.rng.choice((1, 2, 2, 3))):
            made += self.rng.choice(SPACES) + self.statement(self.rng.choice((1, 2, 2, 3)))
        return made + self.rng.choice(["", "\n", "\n\n", "\r\n"])


def template(seed):
    return Templates(random.Random(seed)).template()
