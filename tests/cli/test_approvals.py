"""`toolrelay approvals`: list, show, allow, edit, deny, rules and forget, against a running gateway."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from tests.approving import without_time
from tests.cli.asking import NOTES, TIMEOUT_SECONDS, AskingGateway, Terminal, asking, await_value
from tests.cli.commands import PROGRAM, Result, Run, configure
from tests.upstream import Upstream, reply


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AskingGateway]:
    with asking(tmp_path_factory.mktemp("asking")) as found:
        yield found


@pytest.fixture
def gateway(shared: AskingGateway) -> Iterator[AskingGateway]:
    yield shared
    shared.clean()


@pytest.fixture
def approvals(run: Run, gateway: AskingGateway) -> Run:
    """Run `toolrelay approvals` for the gateway."""

    def approvals(command: str, *arguments: str) -> Result:
        result: Result = run("approvals", command, *gateway.options, *arguments)
        assert gateway.token not in result.out + result.err
        return result

    return approvals


def lines(result: Result) -> list[str]:
    assert (result.code, result.err) == (0, "")
    return result.out.splitlines()


# list


def test_without_questions_list_says_so(approvals: Run) -> None:
    assert approvals("list") == (0, "No question is open.\n", "")


def test_open_questions_are_listed_as_a_table(approvals: Run, gateway: AskingGateway) -> None:
    question, _ = gateway.ask()
    header, row = lines(approvals("list"))
    assert header.split() == ["ID", "AGE", "EXPIRES", "IN", "TOOL", "ARGUMENTS", "MODEL", "KEY"]
    pattern = r'(\S+) +\d+s +(59m|1h) +get_weather +{"city": "Rome"} +fast \(compatible\) +local'
    found = re.fullmatch(pattern, row.rstrip())
    assert found is not None, row
    assert found[1] == question


def test_command_without_a_name_lists(run: Run, gateway: AskingGateway) -> None:
    question, _ = gateway.ask()
    assert question in run("approvals", *gateway.options).out
    assert json.loads(run("approvals", "--json", *gateway.options).out)["approvals"][0]["id"] == question


def test_long_arguments_are_shortened_in_the_table(approvals: Run, gateway: AskingGateway) -> None:
    gateway.ask(arguments={"city": "x" * 5000})
    row = lines(approvals("list"))[1]
    assert '{"city": "xxx' in row
    assert "x…" in row
    assert len(row) <= 200


def test_all_lists_answers_with_who_and_when(approvals: Run, gateway: AskingGateway) -> None:
    question, answer = gateway.ask()
    gateway.answer(question, verdict="deny", reason="not today")
    answer.result(TIMEOUT_SECONDS)
    assert question not in approvals("list").out
    row = next(line for line in lines(approvals("list", "--all")) if question in line)
    assert re.search(r"denied by local: not today, \d{4}-\d\d-\d\d \d\d:\d\d", row)


def test_json_list_is_that_of_the_gateway(approvals: Run, gateway: AskingGateway) -> None:
    gateway.ask()
    listed = json.loads(approvals("list", "--json").out)["approvals"]
    assert [without_time(each) for each in listed] == [without_time(each) for each in gateway.pending()]


def test_ids_are_short_in_a_terminal_but_enough(approvals: Run, gateway: AskingGateway) -> None:
    ids = [gateway.ask()[0] for _ in range(2)]
    with Terminal("approvals", *gateway.options) as terminal:
        assert terminal.end() == 0
    _, *rows = terminal.output.splitlines()
    shown = [row.split()[0] for row in rows]
    assert [len(name) < len(id_) and id_.startswith(name) for name, id_ in zip(shown, ids, strict=True)] == [True, True]
    assert [approvals("deny", name).code for name in shown] == [0, 0]


# show


def test_show_prints_everything(approvals: Run, gateway: AskingGateway) -> None:
    question, _ = gateway.ask()
    shown = approvals("show", question).out
    assert shown.startswith("Run get_weather?\n")
    assert re.search(r"purpose +Return the weather\.\n *\n +Only for today\.", shown)
    assert re.search(r'arguments +{ *\n +  "city": "Rome" *\n +}', shown)
    assert re.search(r"privacy +fast \(compatible\) will see the result of this call\.", shown)
    assert re.search(r"hints +readOnlyHint: true \(the toolset says so; it is not checked\)", shown)
    assert re.search(r"tool +get_weather of the toolset mine", shown)
    assert "stays on this machine" not in shown


def test_show_lists_files_with_size_date_and_first_line(approvals: Run, gateway: AskingGateway) -> None:
    question, _ = gateway.ask("read_notes", {"paths": ["Trips/Rome.md", "gone.md"]})
    shown = approvals("show", question).out
    assert re.search(r"- +Trips/Rome\.md +1\.2 KB +2023-11-1\d \d\d:\d\d +# Rome\.md", shown)
    assert re.search(r"- +gone\.md +File not found", shown)
    assert "fast (compatible) will see the content of the files that you allow." in shown
    assert "PRIVATE" not in shown


def test_show_marks_private_files_for_local_models(approvals: Run, gateway: AskingGateway) -> None:
    question, _ = gateway.ask("read_notes", NOTES, model="home")
    shown = approvals("show", question).out
    assert re.search(r"- +Diary\.md .* PRIVATE # Diary\.md", shown)
    assert shown.count("PRIVATE") == 1
    assert "home (compatible) will see the content of the files that you allow. It stays on this machine." in shown


def test_question_whose_preview_fails_is_shown_without_files(approvals: Run, gateway: AskingGateway) -> None:
    question, answer = gateway.ask("read_notes", {"paths": ["bug.md"]})
    other, _ = gateway.ask()
    assert other in approvals("list").out
    shown = approvals("show", question)
    assert shown.code == 0
    assert "\n  files " not in shown.out
    assert approvals("allow", question).code == 0
    assert answer.result(TIMEOUT_SECONDS) == "read bug.md"


def test_show_of_an_answered_question_says_how_it_ended(approvals: Run, gateway: AskingGateway) -> None:
    question, answer = gateway.ask()
    gateway.answer(question, verdict="allow", arguments={"city": "Oslo"})
    answer.result(TIMEOUT_SECONDS)
    shown = approvals("show", question).out
    assert re.search(r"status +allowed with other arguments by local, ", shown)
    assert re.search(r'ran with +{ *\n +  "city": "Oslo"', shown)


def test_show_json_is_that_of_the_gateway(approvals: Run, gateway: AskingGateway) -> None:
    question, _ = gateway.ask("read_notes", NOTES)
    assert without_time(json.loads(approvals("show", "--json").out)) == without_time(gateway.retrieve(question))


# allow and deny


def test_allow_runs_the_call(approvals: Run, gateway: AskingGateway) -> None:
    question, answer = gateway.ask()
    assert approvals("allow", question) == (0, 'Allowed: get_weather {"city": "Rome"}.\n', "")
    assert answer.result(TIMEOUT_SECONDS) == "18 degrees in Rome"


def test_allow_with_other_arguments_runs_those(approvals: Run, gateway: AskingGateway) -> None:
    _, answer = gateway.ask()
    done = approvals("allow", "--arguments", '{"city": "Oslo"}', "--reason", "it is nearer")
    assert done.out == 'Allowed with other arguments: get_weather {"city": "Oslo"}. Reason: it is nearer\n'
    assert json.loads(answer.result(TIMEOUT_SECONDS)) == {"ran_with": {"city": "Oslo"}, "result": "18 degrees in Oslo"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("{", "this is not JSON: Expecting property name enclosed in double quotes (line 1, column 2)"),
        ("[]", "expected a JSON object"),
        ('{"city": NaN}', "NaN is not JSON"),
    ],
)
def test_arguments_that_are_no_json_object_are_refused(
    approvals: Run, gateway: AskingGateway, arguments: str, problem: str
) -> None:
    gateway.ask()
    code, out, err = approvals("allow", "--arguments", arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"toolrelay: --arguments: {problem}")
    assert len(gateway.pending()) == 1


def test_arguments_that_break_the_schema_are_refused(approvals: Run, gateway: AskingGateway) -> None:
    gateway.ask()
    code, _, err = approvals("allow", "--arguments", '{"city": 1}')
    assert code == 1
    assert err.startswith("toolrelay: These arguments cannot be approved: ")
    assert len(gateway.pending()) == 1


def test_picked_files_are_read_in_the_question_s_order(approvals: Run, gateway: AskingGateway) -> None:
    _, answer = gateway.ask("read_notes", NOTES)
    done = approvals("allow", "--files", "Diary.md", "--files", "Trips/Rome.md")
    assert (done.code, done.err) == (0, "")
    ran = json.loads(answer.result(TIMEOUT_SECONDS))
    assert ran == {"ran_with": {"paths": ["Trips/Rome.md", "Diary.md"], "tags": ["x"]}, "result": "read Trips/Rome.md Diary.md"}


def test_shared_files_are_the_picked_ones(approvals: Run, gateway: AskingGateway) -> None:
    question, answer = gateway.ask("find_notes", NOTES)
    assert question.startswith("shar_")
    shown = approvals("show").out
    assert shown.startswith("Share the result of find_notes?\n")
    assert "fast (compatible) will see the entries that you share." in shown
    assert "find_notes (share)" in approvals("list").out
    assert approvals("allow", "--files", "Diary.md").code == 0
    seen = answer.result(TIMEOUT_SECONDS)
    assert "Diary.md" in seen
    assert "Rome" not in seen


def test_file_that_was_not_asked_about_is_refused(approvals: Run, gateway: AskingGateway) -> None:
    gateway.ask("read_notes", NOTES)
    code, _, err = approvals("allow", "--files", "Other.md")
    assert code == 2
    assert err.splitlines() == [
        "toolrelay: The question has no file Other.md. Its files:",
        *(f"  {path}" for path in NOTES["paths"]),
    ]
    assert len(gateway.pending()) == 1


def test_file_name_in_another_normal_form_is_found(approvals: Run, gateway: AskingGateway) -> None:
    _, answer = gateway.ask("read_notes", {"paths": ["Zoe\u0308.md", "b.md"]})
    assert approvals("allow", "--files", "Zo\u00eb.md").code == 0
    assert json.loads(answer.result(TIMEOUT_SECONDS))["ran_with"] == {"paths": ["Zoe\u0308.md"]}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--files", "a.md"), "The question is not about files: leave out --files."),
        (("--files", "a.md", "--arguments", "{}"), "--arguments and --files exclude each other."),
        (("--same-arguments",), "--same-arguments needs --remember conversation or always."),
    ],
)
def test_options_that_do_not_fit_are_refused(
    approvals: Run, gateway: AskingGateway, options: tuple[str, ...], problem: str
) -> None:
    gateway.ask()
    assert approvals("allow", *options) == (2, "", f"toolrelay: {problem}\n")
    assert len(gateway.pending()) == 1


def test_denied_model_is_told_the_reason(approvals: Run, gateway: AskingGateway) -> None:
    _, answer = gateway.ask()
    assert approvals("deny", "--reason", "Not Rome.").out == 'Denied: get_weather {"city": "Rome"}. Reason: Not Rome.\n'
    assert "The user denied this call. It was not run. Reason: Not Rome." in answer.result(TIMEOUT_SECONDS)


# ids


def test_beginning_or_end_of_an_id_is_enough(approvals: Run, gateway: AskingGateway) -> None:
    question, answer = gateway.ask()
    assert json.loads(approvals("show", question[:-4], "--json").out)["id"] == question
    assert json.loads(approvals("show", question[5:-4], "--json").out)["id"] == question
    assert json.loads(approvals("show", question[-12:], "--json").out)["id"] == question
    assert approvals("allow", question[-12:]).code == 0
    answer.result(TIMEOUT_SECONDS)
    assert json.loads(approvals("show", question[-12:], "--json").out)["status"] == "allowed"


def test_dash_is_the_only_open_question(approvals: Run, gateway: AskingGateway) -> None:
    assert approvals("allow", "-") == (1, "", "toolrelay: No question is open.\n")
    _, answer = gateway.ask()
    assert approvals("allow", "-").code == 0
    answer.result(TIMEOUT_SECONDS)


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [((), "Several questions are open. Name one"), (("appr",), "Several questions begin or end with appr:")],
)
def test_ambiguous_id_lists_the_questions(approvals: Run, gateway: AskingGateway, wanted: tuple[str, ...], problem: str) -> None:
    first, _ = gateway.ask()
    second, _ = gateway.ask(arguments={"city": "Oslo"})
    code, _, err = approvals("deny", *wanted)
    assert code == 2
    assert err.startswith(f"toolrelay: {problem}")
    assert f'  {first}  get_weather {{"city": "Rome"}}\n' in err
    assert f'  {second}  get_weather {{"city": "Oslo"}}\n' in err
    assert len(gateway.pending()) == 2


@pytest.mark.parametrize("wanted", ["appr_none", "", "..", "rules", "events", "a/b?c#d", "\x1b[2J"])
def test_unknown_question_is_an_error(approvals: Run, gateway: AskingGateway, wanted: str) -> None:
    code, out, err = approvals("show", wanted)
    assert (code, out) == (1, "")
    assert err.startswith("toolrelay: There is no")
    assert "\x1b" not in err


def test_second_answer_says_who_gave_the_first(approvals: Run, gateway: AskingGateway) -> None:
    question, answer = gateway.ask()
    approvals("allow")
    answer.result(TIMEOUT_SECONDS)
    expected = (1, "", f"toolrelay: The question '{question}' is allowed by local already.\n")
    assert approvals("deny", question) == expected
    assert approvals("edit", question) == (1, "", "toolrelay: The question is allowed by local already.\n")


# rules


def test_remembered_answer_is_a_rule_that_can_be_forgotten(approvals: Run, gateway: AskingGateway) -> None:
    assert approvals("rules").out == "No answer is remembered.\n"
    _, answer = gateway.ask()
    done = approvals("allow", "--remember", "always")
    assert done.out.splitlines()[1] == "Remembered for always, with any arguments: toolrelay approvals rules"
    answer.result(TIMEOUT_SECONDS)
    assert gateway.call("get_weather", {"city": "Bonn"}).result(TIMEOUT_SECONDS) == "18 degrees in Bonn"
    (rule,) = gateway.rules()
    header, row = lines(approvals("rules"))
    assert header.split() == ["ID", "ANSWER", "TOOL", "ARGUMENTS", "CONVERSATION", "KEY", "MADE"]
    assert re.fullmatch(rf"{rule['id']} +allow +get_weather +any +all +local +\S+ \S+ by local", row.rstrip())
    assert json.loads(approvals("rules", "--json").out) == {"rules": [rule]}
    assert approvals("forget", rule["id"][:15]).out == "Forgotten: allow get_weather for the key local.\n"
    assert gateway.rules() == []


def test_remembered_denial_of_the_same_arguments_in_a_conversation(approvals: Run, gateway: AskingGateway) -> None:
    gateway.ask()
    approvals("deny", "--remember", "conversation", "--same-arguments", "--reason", "no")
    (rule,) = gateway.rules()
    assert (rule["verdict"], rule["arguments"], rule["reason"]) == ("deny", {"city": "Rome"}, "no")
    assert rule["conversation"] is not None
    row = lines(approvals("rules"))[1]
    assert re.search(rf'deny: no +get_weather +{{"city": "Rome"}} +{rule["conversation"]}', row)


def test_unknown_rule_is_an_error(approvals: Run) -> None:
    assert approvals("forget", "rule_x") == (1, "", "toolrelay: There is no rule rule_x. See toolrelay approvals rules.\n")


# edit


def editor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *texts: str | None) -> Path:
    """Set an editor that writes one text after the other, and records what it found. None: leaves the text as it is."""
    script = tmp_path / "editor.py"
    script.write_text(f"""
import json, os, sys
record, texts, path = {str(tmp_path / "record")!r}, {list(texts)!r}, sys.argv[-1]
seen = json.load(open(record)) if os.path.exists(record) else []
mode = [oct(os.stat(each).st_mode & 0o777) for each in (path, os.path.dirname(path))]
seen.append({{"text": open(path).read(), "mode": mode, "arguments": sys.argv[1:-1], "path": path}})
json.dump(seen, open(record, "w"))
text = texts[min(len(seen), len(texts)) - 1]
if text is not None:
    open(path, "w").write(text)
""")
    monkeypatch.setenv("VISUAL", f"'{sys.executable}' {script} 'an option'")
    monkeypatch.setenv("EDITOR", "false")
    return tmp_path / "record"


def test_edited_arguments_are_allowed(
    approvals: Run, gateway: AskingGateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = editor(monkeypatch, tmp_path, '{"city": "Oslo"}')
    _, answer = gateway.ask()
    assert approvals("edit").out == 'Allowed with other arguments: get_weather {"city": "Oslo"}.\n'
    assert json.loads(answer.result(TIMEOUT_SECONDS))["result"] == "18 degrees in Oslo"
    (seen,) = json.loads(record.read_text())
    assert seen["text"] == '{\n  "city": "Rome"\n}\n'
    assert seen["mode"] == ["0o600", "0o700"]
    assert seen["arguments"] == ["an option"]
    assert not Path(seen["path"]).exists()


def test_unchanged_arguments_are_allowed_as_they_are(
    approvals: Run, gateway: AskingGateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    editor(monkeypatch, tmp_path, '{ "city":"Rome" }')
    _, answer = gateway.ask()
    assert approvals("edit").out == 'Allowed: get_weather {"city": "Rome"}.\n'
    assert answer.result(TIMEOUT_SECONDS) == "18 degrees in Rome"


def test_wrong_arguments_are_edited_again_with_the_text_kept(
    approvals: Run, gateway: AskingGateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = editor(monkeypatch, tmp_path, "{", '{"city": 1}', '{"city": true}', '{"city": "Oslo"}')
    _, answer = gateway.ask()
    code, out, err = approvals("edit")
    assert (code, out) == (0, 'Allowed with other arguments: get_weather {"city": "Oslo"}.\n')
    problems = err.splitlines()
    assert problems[0].startswith("The arguments cannot be used: this is not JSON: ")
    assert all(problem.startswith("These arguments cannot be approved: ") for problem in problems[1:])
    assert [seen["text"] for seen in json.loads(record.read_text())][1:] == ["{", '{"city": 1}', '{"city": true}']
    answer.result(TIMEOUT_SECONDS)


def test_error_that_is_not_corrected_ends_the_command(
    approvals: Run, gateway: AskingGateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    editor(monkeypatch, tmp_path, "{")
    gateway.ask()
    code, _, err = approvals("edit")
    assert code == 1
    assert err.splitlines()[-1] == "toolrelay: The arguments were not corrected. Nothing was answered."
    assert len(gateway.pending()) == 1


def test_empty_file_answers_nothing(
    approvals: Run, gateway: AskingGateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    editor(monkeypatch, tmp_path, " \n")
    gateway.ask()
    assert approvals("edit") == (0, "Nothing was answered.\n", "")
    assert len(gateway.pending()) == 1


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("false", "The editor false ended with exit code 1. Nothing was answered."),
        ("no-such-editor -x", "The editor no-such-editor cannot be started: No such file or directory. Set VISUAL or EDITOR."),
        ("'", "The editor's command has a quote that does not end."),
    ],
)
def test_editor_that_fails_answers_nothing(approvals: Run, gateway: AskingGateway, command: str, problem: str) -> None:
    gateway.ask()
    code, out, err = approvals("edit", "--editor", command)
    assert (bool(code), out, err) == (True, "", f"toolrelay: {problem}\n")
    assert len(gateway.pending()) == 1


# The shell


def test_shell_completes_the_ids_of_open_questions(gateway: AskingGateway) -> None:
    question, _ = gateway.ask()
    words = f"toolrelay approvals allow {' '.join(gateway.options)} appr"
    environ = {"_TOOLRELAY_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = subprocess.run(PROGRAM, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [question]


def test_shell_completes_commands_of_approvals() -> None:
    environ = {"_TOOLRELAY_COMPLETE": "complete_bash", "COMP_WORDS": "toolrelay approvals ", "COMP_CWORD": "2"}
    done = subprocess.run(PROGRAM, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    assert {"allow", "deny", "edit", "forget", "list", "rules", "show", "watch"} <= set(done.stdout.split())


# Where the gateway is, and who asks it


def test_gateway_of_the_configuration_is_asked(run: Run, gateway: AskingGateway) -> None:
    configure(f'[server]\nhost = "0.0.0.0"\nport = {gateway.gateway.port}\n')
    assert run("approvals", "--data-dir", str(gateway.gateway.data_dir)) == (0, "No question is open.\n", "")


def test_proxies_are_not_used(approvals: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert approvals("list").code == 0


def test_wrong_token_is_told_what_to_send(run: Run, gateway: AskingGateway, tmp_path: Path) -> None:
    secret = "x" * 40
    (tmp_path / "approver.token").write_text(secret)
    (tmp_path / "approver.token").chmod(stat.S_IRUSR)
    for options in (("--data-dir", str(tmp_path)), ("--key", secret)):
        code, out, err = run("approvals", "--url", gateway.gateway.url, *options)
        assert (code, out) == (1, "")
        assert err.startswith("toolrelay: This is not the approver's token. Send the token of ")
        assert secret not in err


def test_missing_token_is_told_where_it_is(run: Run, gateway: AskingGateway, tmp_path: Path) -> None:
    code, _, err = run("approvals", "--url", gateway.gateway.url, "--data-dir", str(tmp_path / "none"))
    assert code == 1
    assert err.startswith("toolrelay: Approvals need the approver's token. ")
    assert not (tmp_path / "none").exists()


def test_key_must_be_allowed_to_approve(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {name: f"key-of-{name}" for name in ("boss", "guest")}
    tables = "".join(
        f'[[keys]]\nname = "{name}"\nsha256 = "{sha256(key.encode()).hexdigest()}"\napprove = {str(name == "boss").lower()}\n'
        for name, key in keys.items()
    )
    configure(tables)
    assert run("approvals").err.startswith("toolrelay: The gateway has keys. Give one with approve = true: set TOOLRELAY_KEY")
    with asking(tmp_path / "gateway", config=tables, token=keys["boss"]) as found:
        where = "--url", found.gateway.url
        monkeypatch.setenv("TOOLRELAY_KEY", keys["boss"])
        assert run("approvals", *where) == (0, "No question is open.\n", "")
        code, _, err = run("approvals", *where, "--key", keys["guest"])
        assert (code, err) == (1, "toolrelay: The key 'guest' may not answer approvals. Use a key with approve = true.\n")
        code, _, err = run("approvals", *where, "--key", "unknown")
        assert code == 1
        assert "is not known to this gateway" in err or "Incorrect API key" in err
        assert "unknown" not in err


def test_gateway_that_does_not_run_exits_with_2(run: Run) -> None:
    configure("[server]\nport = 1\n")
    for command in ("list", "show", "allow", "deny", "edit", "rules", "watch"):
        code, out, err = run("approvals", command)
        assert (code, out) == (2, "")
        assert err == "toolrelay: No gateway answers at http://127.0.0.1:1. Start it with toolrelay serve.\n"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--url", "gateway:1"), "--url: expected a URL such as http://127.0.0.1:8787."),
        (("--url", "ftp://x"), "--url: expected a URL such as http://127.0.0.1:8787."),
        (("--url", "http://a@b/"), "--url: expected a URL such as http://127.0.0.1:8787."),
        (("--url", "http://[::1"), "--url: expected a URL such as http://127.0.0.1:8787."),
        (("--key", "a\nb: c"), "The key has blanks or characters that no key has."),
        (
            ("--url", "http://example.org"),
            "The gateway at http://example.org is on another machine. Give a key with --key or TOOLRELAY_KEY.",
        ),
    ],
)
def test_wrong_options_are_refused(run: Run, options: tuple[str, ...], problem: str) -> None:
    assert run("approvals", *options) == (2, "", f"toolrelay: {problem}\n")


def test_server_that_is_no_gateway_is_an_error(run: Run) -> None:
    for body, status in ((b"<html>", 200), (b"[]", 200), (b"<html>", 502)):
        with Upstream(reply(body, status)) as server:
            code, out, err = run("approvals", "--url", server.url, "--key", "k")
            assert code in (1, 2)
            assert out == ""
            assert len(err.splitlines()) == 1


# Hostile content

EVIL = "\x1b[2J\x9b31m[bold]\u202egnp.md\u2066\x07\u200b\U000e0041"


def test_hostile_content_cannot_control_the_terminal(approvals: Run, gateway: AskingGateway) -> None:
    _, answer = gateway.ask("odd", {"paths": [EVIL, "b.md"], "tags": ["[/red]\n\r\x08"]})
    outputs = [
        approvals("list"),
        approvals("list", "--json"),
        approvals("show"),
        approvals("show", "--json"),
        approvals("allow", "--files", "nothing\x1b"),
        approvals("deny", "--reason", EVIL, "--remember", "always"),
        approvals("list", "--all"),
        approvals("rules"),
        approvals("rules", "--json"),
    ]
    for code, out, err in outputs:
        assert code == 0 or "has no file nothing\\u001b" in err
        assert [hex(ord(each)) for each in out + err if not (each.isprintable() or each == "\n")] == []
    shown = outputs[2].out
    assert "[red]odd\\u001b[2J\\u001b]0;owned\\u0007" in shown
    assert "\\u001b[2J\\u009b31m[bold]\\u202egnp.md\\u2066\\u0007\\u200b\\udb40\\udc41" in shown
    assert json.loads(outputs[3].out)["arguments"]["paths"][0] == EVIL
    answer.result(TIMEOUT_SECONDS)


def test_hostile_file_can_be_picked(approvals: Run, gateway: AskingGateway) -> None:
    _, answer = gateway.ask("odd", {"paths": [EVIL, "b.md"]})
    assert approvals("allow", "--files", EVIL).code == 0
    assert json.loads(answer.result(TIMEOUT_SECONDS))["ran_with"] == {"paths": [EVIL]}


def test_purpose_cannot_leave_its_column(approvals: Run, gateway: AskingGateway) -> None:
    gateway.ask("odd", {"paths": ["a.md"]})
    assert re.search(r"\n  purpose +one *\n +\\u009b2J\\u202etwo\[/\]", approvals("show").out)


def is_open(gateway: AskingGateway, arguments: dict[str, str]) -> bool:
    return any(question["arguments"] == arguments for question in gateway.pending())


def test_calls_of_one_answer_are_asked_about_one_after_the_other(approvals: Run, gateway: AskingGateway) -> None:
    answer = gateway.call("get_weather", {"city": "Rome"}, ("get_weather", {"city": "Oslo"}))
    for city in ("Rome", "Oslo"):
        await_value(partial(is_open, gateway, {"city": city}))
        assert approvals("allow").out == f'Allowed: get_weather {{"city": "{city}"}}.\n'
    assert answer.result(TIMEOUT_SECONDS) == "18 degrees in Rome18 degrees in Oslo"
