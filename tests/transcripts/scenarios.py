"""Scenarios, which are the answers of the upstream, and the models that they are played on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tests.transcripts.answers import Answer
from tests.transcripts.printed import BOOKING, NOTE, UNKNOWN, VIOLATION, WEATHER, load
from toolrelay.dialects.families import family_of

CHOICES = ("auto", "none", "required", "named")
POLICIES = ("pass", "retry", "text", "fail")
DEFAULT = "default"  # on_bad_call is not set

PROSE = "It is sunny in Paris."
MORE = "\nThe weather in Paris will be sunny, I am sure of it."
NO_TOOLS = "up does not support tools"

_THINK = ("<think>", "</think>")
# For each dialect, a model of the family that prints it, and the family's reasoning markers.
FAMILIES: dict[str, tuple[str, tuple[str, str] | None]] = {
    "apertus": ("apertus-8b", ("<|inner_prefix|>", "<|inner_suffix|>")),
    "cohere": ("command-r7b", ("<|START_THINKING|>", "<|END_THINKING|>")),
    "deepseek_v3": ("deepseek-v3", _THINK),
    "deepseek_v31": ("deepseek-v3.1", _THINK),
    "deepseek_v32": ("deepseek-v3.2", _THINK),
    "deepseek_v4": ("deepseek-v4", _THINK),
    "functiongemma": ("functiongemma", None),
    "gemma3": ("gemma-3", None),
    "gemma4": ("gemma-4", ("<|channel>thought", "<channel|>")),
    "gigachat3": ("gigachat3", None),
    "glm45": ("glm-4.5", _THINK),
    "glm47": ("glm-4.7", _THINK),
    "granite": ("granite-3.3", _THINK),
    "granite_20b_fc": ("granite-20b-functioncalling", None),
    "harmony": ("gpt-oss-20b", ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant")),
    "hermes": ("hermes-4", _THINK),
    "hunyuan": ("hunyuan-a13b", _THINK),
    "internlm": ("internlm3", None),
    "jamba": ("jamba-1.5", None),
    "kimi_k2": ("kimi-k2", _THINK),
    "kimi_k3": ("kimi-k3", ("<|open|>think<|sep|>", "<|close|>think<|sep|>")),
    "lfm2": ("lfm2", _THINK),
    "llama3_json": ("llama-3.1", None),
    "longcat": ("longcat-flash-chat", ("<longcat_think>", "</longcat_think>")),
    "minimax_m1": ("minimax-m1", _THINK),
    "minimax_m2": ("minimax-m2", _THINK),
    "mistral": ("mistral-7b", None),
    "mistral_v11": ("mistral-small-3.2", None),
    "mistral_v13": ("magistral", ("[THINK]", "[/THINK]")),
    "nemotron": ("nemotron-nano", _THINK),
    "olmo3": ("olmo-3", _THINK),
    "phi4_mini": ("phi-4-mini", None),
    "pythonic": ("llama-4", None),
    "qwen3_coder": ("nemotron-3", _THINK),
    "seed_oss": ("seed-oss", ("<seed:think>", "</seed:think>")),
    "step3": ("step3", _THINK),
    "xlam": ("xlam-2", None),
}


class Scenario(Struct, frozen=True, kw_only=True):
    """Answers of the upstream, and the requests that they are played for.

    script   the answers
    past     the request contains an earlier call and its result
    custom   the request offers a custom tool, too
    declared the request declares tools; otherwise they are in the client's own prompt
    choices  values of tool_choice
    parallel values of parallel_tool_calls
    """

    name: str
    script: tuple[Answer, ...]
    past: bool = False
    custom: bool = False
    declared: bool = True
    choices: tuple[str, ...] = CHOICES
    parallel: tuple[bool, ...] = (True, False)


class Combination(NamedTuple):
    """The parameters of one exchange."""

    scenario: str
    wire: str
    choice: str
    policy: str
    parallel: bool
    stream: bool

    def __str__(self) -> str:
        parallel = "parallel" if self.parallel else "single"
        return f"{self.wire} {self.scenario} {self.choice} {parallel} {'streamed' if self.stream else 'whole'} {self.policy}"


class Subject(Struct, frozen=True, kw_only=True):
    """A model that is recorded once for each policy. `settings` are lines of its table in the configuration."""

    name: str
    settings: str
    scenarios: tuple[Scenario, ...]
    policies: tuple[str, ...] = POLICIES
    wires: tuple[str, ...] = ("chat",)
    is_stateful: bool = False
    is_codex: bool = False

    def combinations(self) -> Iterator[tuple[Scenario, Combination]]:
        for wire, scenario in product(self.wires, self.scenarios):
            if wire == "responses" and scenario.name not in _OVER_RESPONSES:
                continue
            for choice, parallel, stream, policy in product(scenario.choices, scenario.parallel, (True, False), self.policies):
                yield scenario, Combination(scenario.name, wire, choice, policy, parallel, stream)

    def model(self, combination: Combination) -> str:
        """Return the model's name. A stateful model is used for one exchange only, so that each has its own name."""
        if not self.is_stateful:
            return f"{self.name}-{combination.policy}"
        parts = (combination.policy, combination.choice, combination.parallel, combination.stream)
        return "-".join(map(str, (self.name, *parts)))

    def tables(self, url: str) -> str:
        """Return the tables of its models in the configuration."""
        models = {self.model(combination): combination.policy for _, combination in self.combinations()}
        return "".join(
            f'[models."{model}"]\nbase_url = "{url}"\n{self.settings}\n'
            + ("" if policy == DEFAULT else f'on_bad_call = "{policy}"\n')
            for model, policy in models.items()
        )


def _scenario(name: str, *script: Answer, past: bool = False, custom: bool = False) -> Scenario:
    return Scenario(name=name, script=script, past=past, custom=custom)


# Scenarios that are played in full for every dialect. The others only where several calls are allowed.
_PLAYED_IN_FULL = frozenset({"prose", "text_call", "two_calls", "call_prose", "good_bad", "malformed"})
_CALLING = ("auto", "required", "named")
_OVER_RESPONSES = frozenset(
    {"prose", "text_call", "two_calls", "malformed", "schema_breach", "length", "custom_tool", "begun_call", "not_begun"}
    | {"narrative_block", "blocks_of_undeclared_tools"}
)


def printed_scenarios(dialect: str, *, more: bool = False) -> tuple[Scenario, ...]:
    """Return scenarios of a model that prints its calls. `more` adds those that are alike for all dialects."""
    texts = load()[dialect]
    good = Answer(text=texts["call"])
    found = [
        _scenario("prose", Answer(text=PROSE)),
        _scenario("text_call", Answer(text="Let me see.\n" + texts["call"])),
        _scenario("two_calls", Answer(text=texts["two"])),
        _scenario("call_prose", Answer(text=texts["call"] + MORE)),
        _scenario("malformed", Answer(text=texts["malformed"]), good),
        _scenario("unknown_tool", Answer(text=texts["unknown"]), good),
        _scenario("schema_breach", Answer(text=texts["violation"]), Answer(text=texts["strict"])),
        _scenario("good_bad", Answer(text=texts["good_then_malformed"]), good),
        _scenario("length", Answer(text=texts["begun"], finish="length"), good),
        _scenario("after_result", Answer(text=PROSE), good, past=True),
    ]
    if "repairable" in texts:
        found.append(_scenario("repairable", Answer(text=texts["repairable"])))
    markers = FAMILIES.get(dialect, ("", None))[1]
    if markers is not None:
        found.append(_scenario("reasoning", Answer(text=f"{markers[0]}I must look.{markers[1]}" + texts["call"])))
    if more:
        found += [
            _scenario("call", good),
            _scenario("unfinished", Answer(text=texts["begun"]), good),
            _scenario("malformed_twice", Answer(text=texts["malformed"])),
            _scenario("prose_call", Answer(text=PROSE), good),
            _scenario("no_usage", Answer(text=texts["call"] + MORE, usage=False)),
            _scenario("reasoning_apart", Answer(reasoning="I must look.", text=texts["call"])),
            _scenario("length_after_call", Answer(text=texts["call"] + MORE, finish="length")),
            _scenario("custom_tool", Answer(text=texts["custom"]), custom=True),
        ]
        return tuple(found)
    return tuple(one if one.name in _PLAYED_IN_FULL else replace(one, choices=_CALLING, parallel=(True,)) for one in found)


def native_scenarios() -> tuple[Scenario, ...]:
    """Return scenarios of a model with native calls."""
    good = Answer(calls=(WEATHER,))
    malformed = ("get_weather", '{"city":"Paris" "days" no]}')
    return (
        _scenario("prose", Answer(text=PROSE)),
        _scenario("text_call", Answer(text="Let me see.", calls=(WEATHER,))),
        _scenario("two_calls", Answer(calls=(WEATHER, BOOKING))),
        _scenario("malformed", Answer(calls=(malformed,)), good),
        _scenario("malformed_twice", Answer(calls=(malformed,))),
        _scenario("repairable", Answer(calls=(("get_weather", '{"city":"Paris","days":3,}'),))),
        _scenario("unended", Answer(calls=(("get_weather", '{"city":"Paris","days":3'),)), good),
        _scenario("unknown_tool", Answer(calls=(UNKNOWN,)), good),
        _scenario("schema_breach", Answer(calls=(VIOLATION,)), Answer(calls=(BOOKING,))),
        _scenario("good_bad", Answer(calls=(BOOKING, malformed)), good),
        _scenario("length", Answer(calls=(("get_weather", '{"city":"Par'),), finish="length"), good),
        _scenario("no_usage", Answer(calls=(WEATHER,), usage=False)),
        _scenario("reasoning_apart", Answer(reasoning="I must look.", calls=(WEATHER,))),
        _scenario("prose_call", Answer(text=PROSE), good),
        _scenario("after_result", Answer(text=PROSE), past=True),
        _scenario("custom_tool", Answer(calls=(NOTE,)), custom=True),
        _scenario("upstream_error", Answer(status=400, text="The messages are too odd.")),
    )


def _prefixed(prefix: str, scenarios: tuple[Scenario, ...]) -> tuple[Scenario, ...]:
    return tuple(replace(one, name=prefix + one.name) for one in scenarios)


def _table(provider: str, model: str, tool_calling: str, *lines: str) -> str:
    return "\n".join([f'provider = "{provider}"', f'model = "{model}"', f'tool_calling = "{tool_calling}"', *lines])


_WITH_MORE = ("hermes", "sealed", "llama3_json", "qwen3_coder")
_OVER_BOTH = ("hermes", "sealed")


def _dialects() -> Iterator[Subject]:
    for dialect in load():
        model = FAMILIES.get(dialect, ("up", None))[0]
        family = family_of(model)
        marked = ['thinking = "marked"'] if family is not None and family.begins_in_reasoning else []
        yield Subject(
            name=dialect,
            settings=_table("compatible", model, dialect, *marked),
            scenarios=printed_scenarios(dialect, more=dialect in _WITH_MORE),
            policies=(DEFAULT, *POLICIES) if dialect == "hermes" else POLICIES,
            wires=("chat", "responses") if dialect in _OVER_BOTH else ("chat",),
        )


def _begun() -> Iterator[Subject]:
    """Yield a model whose chat template opens the reasoning."""
    call = load()["glm47"]["call"]
    ponders = "I could print " + call
    scenarios = (
        _scenario("begun", Answer(text=f"{ponders}</think>\n\n{PROSE}")),
        _scenario("begun_call", Answer(text=f"{ponders}</think>\n\n{call}")),
        _scenario("not_begun", Answer(text="Let me see.\n" + call)),
        _scenario("apart", Answer(reasoning="I must look.", text=f"\n\n{call}")),
        _scenario("begun_length", Answer(text=ponders, finish="length")),
    )
    for name, tool_calling in (("glm47.begun", "glm47"), ("native.begun", "auto")):
        yield Subject(
            name=name,
            settings=_table("compatible", "glm-4.7", tool_calling),
            scenarios=tuple(replace(one, choices=("auto", "none"), parallel=(True,)) for one in scenarios),
            policies=(DEFAULT,),
            wires=("chat", "responses"),
        )


def _cutoffs() -> Iterator[Subject]:
    for dialect, cutoff in product(("hermes", "sealed", "llama3_json"), ("off", "first")):
        wanted = ("prose", "two_calls", "call_prose", "good_bad", "malformed", "no_usage")
        yield Subject(
            name=f"{dialect}.cutoff_{cutoff}",
            settings=_table("compatible", "up", dialect, f'cutoff = "{cutoff}"'),
            scenarios=tuple(one for one in printed_scenarios(dialect, more=True) if one.name in wanted),
            policies=("pass", "retry"),
        )


def _natives() -> Iterator[Subject]:
    native, hermes, sealed = native_scenarios(), printed_scenarios("hermes"), printed_scenarios("sealed")
    policies = (DEFAULT, *POLICIES)
    yield Subject(
        name="native",
        settings=_table("compatible", "up", "native"),
        scenarios=native,
        policies=policies,
        wires=("chat", "responses"),
    )
    few = (DEFAULT, "retry")
    yield Subject(name="native.auto", settings=_table("compatible", "up", "auto"), scenarios=native, policies=few)
    yield Subject(
        name="native.auto_qwen3",
        settings=_table("compatible", "qwen3", "auto"),
        scenarios=native + _prefixed("printed_", hermes),
        policies=(DEFAULT, "retry", "text", "fail"),
        wires=("chat", "responses"),
    )
    yield Subject(name="native.openai", settings=_table("openai", "gpt-6", "auto"), scenarios=native, policies=few)
    yield Subject(
        name="native.over_responses",
        settings=_table("compatible", "up", "native", 'wire = "responses"'),
        scenarios=native,
        policies=few,
    )
    yield Subject(
        name="hermes.over_responses",
        settings=_table("compatible", "up", "hermes", 'wire = "responses"'),
        scenarios=printed_scenarios("hermes"),
    )
    for provider in ("ollama", "llamacpp"):
        yield Subject(
            name=f"native.{provider}",
            settings=_table(provider, "up", "auto"),
            scenarios=native + _constrained_scenarios() + _prefixed("printed_", sealed),
            policies=POLICIES if provider == "ollama" else (DEFAULT,),
        )
    yield Subject(
        name="hermes.ollama",
        settings=_table("ollama", "qwen3", "hermes"),
        scenarios=printed_scenarios("hermes") + _constrained_scenarios(),
    )
    refusal = Answer(status=400, text=NO_TOOLS)
    for name, model, dialect in (("native.refused", "up", "sealed"), ("native.refused_qwen3", "qwen3", "hermes")):
        call = Answer(text=load()[dialect]["call"] + MORE)
        yield Subject(
            name=name,
            settings=_table("compatible", model, "auto"),
            scenarios=(_scenario("refused", refusal, call), _scenario("later", call)),
            policies=policies,
            is_stateful=True,
        )
    yield Subject(
        name="off", settings=_table("compatible", "up", "off"), scenarios=native[:3] + native[-3:-1], policies=("retry",)
    )


def _constrained_scenarios() -> tuple[Scenario, ...]:
    """Return scenarios of a server that was given a schema of calls."""
    call = Answer(text='{"name":"get_weather","arguments":{"city":"Paris","days":3}}')
    refusal = Answer(status=400, text="response_format is not supported")
    return (
        _scenario("constrained", call),
        _scenario("constraint_refused", refusal, call),
        _scenario("constraint_ignored", Answer(text=load()["hermes"]["call"])),
    )


def _codex() -> Iterator[Subject]:
    """Play each scenario only where it matters: a turn takes some 50 ms."""
    native = {one.name: one for one in native_scenarios()}
    hermes = {one.name: one for one in printed_scenarios("hermes")}
    names = ("two_calls", "malformed", "unknown_tool", "schema_breach", "good_bad", "length", "reasoning_apart")
    forced = ("required", "named")
    constrained = replace(_constrained_scenarios()[0], choices=forced)
    printed = replace(printed_scenarios("sealed")[3], name="printed", choices=forced)
    text_call = _scenario("text_call", Answer(text="Let me see.", calls=(WEATHER,)), Answer(text=PROSE))
    by_choice = (native["prose"], text_call, constrained, printed)
    calls = tuple(replace(native[name], choices=("auto",)) for name in names)
    settings = ("codex", "scripted")
    key = 'api_key = "key"'
    for name, scenarios in (("codex.choices", by_choice), ("codex.calls", calls)):
        yield Subject(name=name, settings=_table(*settings, "auto", key), scenarios=scenarios, is_codex=True)
    yield Subject(
        name="codex.responses",
        settings=_table(*settings, "native", key),
        scenarios=tuple(one for one in (*by_choice, *calls) if one.name in _OVER_RESPONSES),
        policies=(DEFAULT,),
        wires=("responses",),
        is_codex=True,
    )
    yield Subject(
        name="codex.hermes",
        settings=_table(*settings, "hermes", key),
        scenarios=tuple(
            replace(hermes[name], choices=("auto", "required"), parallel=(True, False))
            for name in ("prose", "two_calls", "malformed", "schema_breach")
        ),
        policies=("pass", "retry"),
        is_codex=True,
    )


def subjects() -> dict[str, Subject]:
    return {subject.name: subject for subject in (*_codex(), *_dialects(), *_begun(), *_cutoffs(), *_natives())}
