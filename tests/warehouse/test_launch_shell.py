"""Shell scripts as the commands that they would run; nothing is run."""

from __future__ import annotations

import pytest

from warehouse.errors import InputError
from warehouse.launch.shell import read_script


def words(text: str) -> list[str]:
    """Return the words of the last command of a script."""
    return read_script(text, "run.sh").commands[-1].words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=2\np.py --tp $A ${A}x", ["p.py", "--tp", "2", "2x"]),
        ("p.py --a 1 \\\n  --b 2  # a comment", ["p.py", "--a", "1", "--b", "2"]),
        ("A=(--x 1 # one\n --y\n)\nA+=(--z)\np.py ${A[@]}", ["p.py", "--x", "1", "--y", "--z"]),
        ('A=(a "b c")\np.py "${A[@]}"', ["p.py", "a", "b c"]),
        ('A=("--x 1")\np.py ${A[@]}', ["p.py", "--x", "1"]),
        ('A="--x 1"\nA+=" --y"\np.py $A', ["p.py", "--x", "1", "--y"]),
        ("A='$B'\np.py $A \"$C\" '$D'", ["p.py", "$B", "$C", "$D"]),
        ("p.py ${A:-4} ${B-5} ${C:=6} $C ${C:+7}", ["p.py", "4", "5", "6", "6", "7"]),
        ("A=3\nB=$((A*4+2))\np.py $B $(($B/2))", ["p.py", "14", "7"]),
        ("p.py $(nproc) `date`", ["p.py", "$(nproc)", "`date`"]),
        ("export A=1 B=2\nlocal C=3\np.py $A$B$C", ["p.py", "123"]),
        ("A=1 B=2 p.py $X", ["p.py", "$X"]),
        ("cd /x && p.py 1 | tee log", ["tee", "log"]),
        ("false || A=1\ntrue || A=2\np.py ${A:-0}", ["p.py", "1"]),
    ],
)
def test_words_are_those_that_a_shell_makes(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ('[ "$A" == "x" ]', "yes"),
        ('[[ $A != "x" ]]', "no"),
        ("[[ -n $A && $B -gt 3 ]]", "yes"),
        ("[[ -z $A || $B -le 3 ]]", "no"),
        ("! [ $B -eq 4 ]", "no"),
        ("test $B -lt 10", "yes"),
    ],
)
def test_plain_conditions_are_followed(condition: str, expected: str) -> None:
    branches = "then C=yes\nelif [ 1 == 2 ]; then C=other\nelse C=no; fi\np.py $C"
    assert words(f"A=x\nB=4\nif {condition}; {branches}") == ["p.py", expected]


def test_cases_are_followed() -> None:
    case = 'case "$A" in\n  a|b) C=1 ;;\n  "c")\n  C=2\n  ;;\n  *) C=3;;\nesac\np.py $C'
    assert [words(f"A={value}\n{case}")[1] for value in "abcd"] == ["1", "1", "2", "3"]


@pytest.mark.parametrize(
    "block",
    [
        "if [ -f /data ]; then\n{}\nfi",
        "if grep -q x /etc/hosts; then {}; fi",
        "for i in 1 2; do\n{}\ndone",
        "while read -r x; do {}; done",
        "start() {\n{}\n}",
        'if [ "$UNSET" == 1 ]; then {}; else {}; fi',
        "if [ -f /data ] && [ 1 == 1 ]; then {}; fi",
    ],
)
def test_what_only_the_machine_knows_is_uncertain(block: str) -> None:
    script = read_script(block.replace("{}", "A=--sequence-parallel; p.py --x"), "run.sh")
    runs = [command for command in script.commands if command.words[0] == "p.py"]
    assert runs
    assert not any(command.is_certain for command in runs)
    assert {flag for _, flag in script.uncertain} == {"--sequence-parallel"}
    assert "A" not in script.variables


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[ "$A" = 1 ] && F+=(--x)', ["--x"]),
        ("[[ $A == 1 ]] && F+=(--x)", ["--x"]),
        ("[[ -n $A ]] || F+=(--x 1)", ["--x"]),
        ("[ $A = 1 ] && { F+=(--x); F+=(--y); }", ["--x", "--y"]),
        ("F[2]=--x", ["--x"]),
        ("F[${#F[@]}]=--x", ["--x"]),
        ('if [ $# -ne 0 ]; then F="$*"; fi', ["$*"]),
        ("[[ 1 == 1 ]] && F+=(--x)\n[[ 1 == 2 ]] && F+=(--y)\n[ 1 = 1 ] || F+=(--z)", []),
        ("[ -d $A ] || mkdir -p $A && F+=(--x)", []),
    ],
)
def test_arguments_that_may_be_given_are_kept(text: str, expected: list[str]) -> None:
    script = read_script(f"F=()\n{text}\np.py ${{F[@]}}", "run.sh")
    assert [flag for _, flag in script.uncertain] == expected
    assert script.commands[-1].words[1:] == ([] if expected else ["--x"])


def test_a_command_after_a_question_to_the_machine_is_uncertain() -> None:
    commands = read_script("[ -f $A ] && p.py 1\ncd $A && p.py 2", "run.sh").commands
    assert {each.words[1]: each.is_certain for each in commands if len(each.words) > 1} == {
        "1": False,
        "$A": True,
        "2": True,
    }


def test_a_command_in_a_text_is_followed() -> None:
    text = 'A="--tp 4"\nCMD="cd /x; python p.py $A"\nsrun --x sh -c "${CMD} 2>&1"'
    found = [command.words for command in read_script(text, "run.sh").commands]
    assert ["python", "p.py", "--tp", "4", "2>&1"] in [[*each] for each in found] or [
        "python",
        "p.py",
        "--tp",
        "4",
    ] in found


def test_a_document_for_a_scheduler_is_followed() -> None:
    text = "A=3\nsbatch <<EOF\n#SBATCH -N 2\np.py --tp $A\nEOF\ncat <<X\np.py --not\nX\n"
    commands = [command.words for command in read_script(text, "run.sh").commands]
    assert ["p.py", "--tp", "3"] in commands
    assert ["p.py", "--not"] not in commands


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A='x", "line 1: a quote ' is not closed"),
        ('\n\nA="x', 'line 3: a quote " is not closed'),
        ("A=(1\n2", "line 1: an array is not closed"),
        ("A=xxxxxxxxxx\n" + "A=$A$A\n" * 40, "variables hold more than 1,000,000 characters"),
    ],
)
def test_a_broken_script_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=r"run\.sh: ") as error:
        read_script(text, "run.sh")
    assert reason in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 50_000,
        "${A:-" * 3000 + "}" * 3000,
        "A=" + "$((" * 2000,
        "p.py $((10**10**10)) $((1<<99999)) $((__import__('os')))",
        "\0\0 p.py \x1b[31m",
        'A="' + "\\\\" * 30_000 + '"',
        "x() " * 20_000,
        "A=()\n" + "A+=(--x)\n" * 100_000,
        "".join(f"A{number}=1\n" for number in range(100_000)),
        "if " * 5000 + "fi " * 10,
        "esac; fi; done; }; ) && || ;;",
    ],
)
def test_a_hostile_script_ends_soon(text: str) -> None:
    read_script(text, "run.sh")
