"""The commands that a shell script would run, found without running anything.

Variables, arrays, arithmetic and plain conditions are followed. The environment of the caller is
not read. A command in a loop, in a function or behind a condition that only the machine can answer
is uncertain.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from warehouse.errors import InputError

MOST_TEXT = 1_000_000
"""Characters that the variables of a script may hold together."""

_DEEPEST = 20
"""Commands within texts of commands."""

_EXPANSION = re.compile(
    r"\$\(\((?:[^()]|\([^()]*\))*\)\)|\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`|"
    r"\$\{(?:[^{}]|\{[^{}]*\})*\}|\$[A-Za-z_]\w*|\$[0-9@*#?!$]"
)
_PIECE = re.compile(
    rf"""
    (?P<space>(?:[ \t\r]|\\\r?\n)+)
  | (?P<comment>\#[^\n]*)
  | (?P<single>'[^']*')
  | (?P<double>"(?:[^"\\]|\\.)*")
  | (?P<expansion>{_EXPANSION.pattern})
  | (?P<escape>\\.)
  | (?P<heredoc><<-?[ \t]*(?P<mark>['"]?\w+['"]?)[^\n]*)
  | (?P<redirection>[0-9]?>&[0-9-]|&>>?)
  | (?P<operator>&&|\|\||;;|[;|&\n])
  | (?P<bracket>[()])
  | (?P<text>[^\s'"`$\\;|&()<>\#]+|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_BRACED = re.compile(r"([A-Za-z_]\w*|[0-9@*]+)(\[[@*0-9]+\])?(?:(:?[-=+?])(.*))?", re.DOTALL)

_ARITHMETIC = {"Add": "add", "Sub": "sub", "Mult": "mul", "Div": "floordiv", "Mod": "mod"}
_LOOPS = ("for", "while", "until", "select")
_SHELLS = ("sbatch", "srun", "bash", "sh")
_DECLARING = ("export", "local", "declare", "typeset", "readonly")


@dataclass
class Word:
    """A word: parts with their kinds, and the words of an array that it assigns."""

    parts: list[tuple[str, str]] = field(default_factory=list)
    array: list[Word] | None = None

    @property
    def literal(self) -> str:
        """The word if nothing in it is quoted or expanded, else the part before that."""
        return self.parts[0][1] if self.parts and self.parts[0][0] == "text" else ""


@dataclass(frozen=True)
class RunCommand:
    """A command with its words expanded; `$NAME` stands where the script sets no NAME."""

    line: int
    words: list[str]
    is_certain: bool


@dataclass
class Script:
    """Commands of a script and its variables.

    `uncertain` has the lines of assignments that may not happen, with the flags in them.
    """

    commands: list[RunCommand] = field(default_factory=list)
    variables: dict[str, list[str]] = field(default_factory=dict)
    uncertain: list[tuple[int, str]] = field(default_factory=list)


def read_script(text: str, file: str) -> Script:
    """Return the commands that a script would run, with their words expanded."""
    run = _Run(file)
    run.text(text, 0)
    return run.script


def _commands(text: str, file: str) -> Iterator[tuple[int, str, list[Word]]]:
    """Yield the line of each command, the operator before it, and its words."""
    words: list[Word] = []
    outer: list[Word] = []
    word, line, start, before, skip_to = Word(), 1, 1, ";", 0
    for match in _PIECE.finditer(text):
        if match.start() < skip_to:
            continue
        kind, piece = _kind(match, word, is_inside=bool(outer)), match[0]
        if kind == "text" and piece in "'\"`":
            hint = "close it, or write the command line into a file of its own"
            raise InputError(f"{file}: line {line}: a quote {piece} is not closed", hint)
        if not words and not word.parts:
            start = line
        line += piece.count("\n")
        if kind in ("single", "double", "expansion", "escape", "text"):
            inner = piece[1:-1] if kind in ("single", "double") else piece
            if word.parts and kind == "text" == word.parts[-1][0]:
                word.parts[-1] = (kind, word.parts[-1][1] + inner)
            else:
                word.parts.append((kind, inner))
        elif kind == "array":
            outer, words = words, []
            word.array, outer = words, [*outer, word]
            word = Word()
        elif kind == "bracket" and piece == ")" and outer:
            words += [word] if word.parts else []
            words, outer, word = outer, [], Word()
        else:
            words += [word] if word.parts else []
            word = Word()
            if kind == "operator" and not outer:
                literals = [each.literal for each in words]
                if piece in ("&&", "||") and "[[" in literals and "]]" not in literals:
                    words.append(Word([("text", piece)]))
                    continue
                if words:
                    yield start, before, words
                words, before = [], piece if piece in ("&&", "||") else ";"
            elif kind == "heredoc":
                mark = re.escape(match["mark"].strip("'\""))
                end = re.compile(rf"^\s*{mark}\s*$|\Z", re.MULTILINE).search(text, match.end())
                skip_to = end.end() if end else len(text)
                if end and words and words[0].literal in _SHELLS:
                    words.append(Word([("double", text[match.end() : end.start()])]))
                line += text.count("\n", match.end(), skip_to)
    if outer:
        raise InputError(f"{file}: line {start}: an array is not closed", "close it with )")
    words += [word] if word.parts else []
    if words:
        yield start, before, words


def _kind(match: re.Match[str], word: Word, *, is_inside: bool) -> str:
    """Return what a piece is: brackets of functions and patterns are text."""
    kind, piece = str(match.lastgroup), match[0]
    if piece == "(" and word.literal.endswith("="):
        return "array"
    follows = match.string[match.end() : match.end() + 1]
    is_inner = kind == "bracket" and not (piece == ")" and is_inside)
    is_inner = is_inner or kind == "comment" or (piece == "|" and follows not in ("", " "))
    return "text" if word.parts and is_inner else kind


@dataclass
class _Block:
    """An `if`, a `case` or another block: whether what is in it runs, and a branch before it did.

    None: nobody knows.
    """

    runs: bool | None = None
    has_run: bool | None = False
    subject: str | None = None

    def branch(self, *, met: bool | None) -> None:
        """Begin another branch, which runs if no one before did and its condition is met."""
        before = self.runs, self.has_run
        self.has_run = True if True in before else None if None in before else False
        self.runs = False if self.has_run or met is False else None if self.has_run is None else met


class _Run:
    """A script being followed.

    Attributes
    ----------
    blocks
        Those around the command, the innermost last.
    status
        Whether the last command succeeded; None: nobody knows.
    held
        Characters that the variables have.
    """

    def __init__(self, file: str) -> None:
        self.file, self.script = file, Script()
        self.blocks: list[_Block] = []
        self.status: bool | None = True
        self.held = 0
        self.is_condition = self.is_function = False

    @property
    def is_certain(self) -> bool:
        """Whether the command runs for all that the script says."""
        return all(block.runs is not None for block in self.blocks)

    def text(self, text: str, depth: int, at: int = 0) -> None:
        """Follow a text of commands, which may be a part of a line."""
        if depth > _DEEPEST:
            raise InputError(f"{self.file}: commands within commands go too deep")
        for line, before, words in _commands(text, self.file):
            self.take(at or line, before, words, depth)

    def take(self, line: int, before: str, words: list[Word], depth: int) -> None:
        """Follow a command."""
        if words[0].literal == "case" and len(words) > 2:
            self.blocks.append(_Block(False, subject=self.joined(words[1])))
            words = words[3:]  # case SUBJECT in
        runs = self.follows(before)
        while words and (self.is_keyword(words[0].literal, runs) or self.is_pattern(words[0])):
            runs = True if words[0].literal == "{" else runs
            words = words[1:]
        if not words or runs is False or any(block.runs is False for block in self.blocks):
            return
        self.blocks += [_Block()] if runs is None else []
        self.run(line, before, words, depth)
        if runs is None:
            self.blocks.pop()
            self.status = (before == "||" and self.status) or None

    def follows(self, before: str) -> bool | None:
        """Return whether a command runs after the last one; None: nobody knows."""
        if before == ";" or (self.status is None and self.is_condition):
            return before != "||"
        return self.status if before == "&&" or self.status is None else not self.status

    def run(self, line: int, before: str, words: list[Word], depth: int) -> None:
        """Follow a command that runs, or may run."""
        if words[0].literal in ("[", "[[", "test", "!"):
            self.status = found = self.test([self.joined(word) for word in words])
            if self.is_condition and (before != "&&" or self.blocks[-1].runs or found is False):
                self.blocks[-1].runs = found
            return
        if self.is_condition:
            self.blocks[-1].runs = None  # a program answers
            return
        self.status = words[0].literal != "false"  # programs are taken to succeed
        if words[0].literal in _DECLARING:
            words = [word for word in words[1:] if not word.literal.startswith("-")]
        while words and (name := _ASSIGNED.match(words[0].literal)):
            self.assign(line, name[1], words[0], is_added=bool(name[2]))
            words = words[1:]
        expanded = [text for word in words for text in self.fields(word)]
        if not expanded:
            return
        if re.match(r"\w+\[", expanded[0]):  # an element of an array
            self.may_give(line, [text.partition("]=")[2] for text in expanded])
            return
        self.script.commands.append(RunCommand(line, expanded, self.is_certain))
        for text in expanded:  # eval, or bash -c "..."
            if re.search(r"\s--?\w", text) and (expanded[0] in ("eval", *_SHELLS) or ".py" in text):
                self.text(text, depth + 1, line)

    def is_keyword(self, word: str, runs: bool | None) -> bool:
        """Return whether a word is one of the grammar; follow it."""
        if word == "if":
            self.blocks.append(_Block())
            self.is_condition = True
        elif word in ("elif", "else") and self.blocks:
            self.blocks[-1].branch(met=True)
            self.is_condition = word == "elif" and self.blocks[-1].runs is True
        elif word == "then":
            self.is_condition = False
        elif word in _LOOPS or word == "{":
            is_open = word != "{" or self.is_function
            self.blocks.append(_Block(None if is_open else runs))
            self.is_function = False
        elif word in ("fi", "done", "esac", "}") and self.blocks:
            self.blocks.pop()
            self.is_condition = False
        elif word == "function" or word.endswith("()"):
            self.is_function = True
        elif word != "do":
            return False
        return True

    def is_pattern(self, word: Word) -> bool:
        """Return whether a word is a pattern of the innermost block, a `case`; follow it."""
        subject = self.blocks[-1].subject if self.blocks else None
        if subject is None or not word.parts or not word.parts[-1][1].endswith(")"):
            return False
        patterns = self.joined(word).strip("()").split("|")
        is_met = any(fnmatchcase(subject, pattern.strip()) for pattern in patterns)
        self.blocks[-1].branch(met=None if "$" in subject else is_met)
        return True

    # ---- conditions ----

    def test(self, words: list[str]) -> bool | None:
        """Return whether a condition holds; None if the script does not say."""
        words = [word for word in words if word not in ("[", "]", "[[", "]]", "test")]
        for sign in ("||", "-o", "&&", "-a"):
            if sign in words:
                at = words.index(sign)
                both = self.test(words[:at]), self.test(words[at + 1 :])
                decisive = sign in ("||", "-o")
                if decisive in both:
                    return decisive
                return None if None in both else not decisive
        if words[:1] == ["!"]:
            found = self.test(words[1:])
            return None if found is None else not found
        if any("$" in word or "`" in word for word in words):
            return None
        if len(words) == 2 and words[0] in ("-z", "-n"):
            return (words[1] == "") == (words[0] == "-z")
        if len(words) != 3:
            return None
        left, sign, right = words
        if sign in ("=", "==", "!="):
            return (left == right) == (sign != "!=")
        if re.fullmatch("-(eq|ne|[lg][te])", sign) and left.isdecimal() and right.isdecimal():
            return bool(getattr(operator, sign[1:])(int(left), int(right)))
        return None

    # ---- variables ----

    def assign(self, line: int, name: str, word: Word, *, is_added: bool) -> None:
        """Set a variable, or add to it; not where nobody knows whether it happens."""
        if word.array is not None:
            values = [text for each in word.array for text in self.fields(each)]
        else:
            rest = Word([("text", word.literal.partition("=")[2]), *word.parts[1:]])
            values = [self.joined(rest)]
        if not self.is_certain:
            self.may_give(line, values)
            return
        held = self.script.variables.setdefault(name, [])
        if word.array is None and is_added:
            values = ["".join([*held, *values])]
        if word.array is None or not is_added:
            self.held -= sum(map(len, held)) + len(held)
            held.clear()
        self.held += sum(map(len, values)) + len(values)
        held += values
        if self.held > MOST_TEXT:
            reason = f"variables hold more than {MOST_TEXT:,} characters"
            raise InputError(f"{self.file}: line {line}: {reason}")

    def may_give(self, line: int, values: Iterable[str]) -> None:
        """Keep the flags of values that nobody knows whether they count."""
        words = (word for word in " ".join(values).split() if word.startswith(("--", "$@", "$*")))
        self.script.uncertain += [(line, word.partition("=")[0]) for word in words]

    def fields(self, word: Word) -> list[str]:
        """Return the words that a word becomes; what is not quoted is split at spaces."""
        found: list[str] = []
        current: str | None = None
        for kind, text in word.parts:
            values = [self.unquoted(kind, text)]
            if kind == "expansion":
                values = self.expanded(text)
                values = values if values == [text] else " ".join(values).split()
            elif kind == "double" and re.fullmatch(r"\$\{\w+\[@\]\}", text):
                values = self.expanded(text)
            if not values:
                continue
            found += [] if len(values) == 1 else [(current or "") + values[0], *values[1:-1]]
            current = values[-1] if len(values) > 1 else (current or "") + values[0]
        return found if current is None else [*found, current]

    def joined(self, word: Word) -> str:
        """Return the one text that a word becomes, as in an assignment or a condition."""
        return "".join(self.unquoted(kind, text) for kind, text in word.parts)

    def unquoted(self, kind: str, text: str) -> str:
        if kind == "double":
            text = _EXPANSION.sub(lambda match: " ".join(self.expanded(match[0])), text)
            return re.sub(r'\\(["\\$`])', r"\1", text.replace("\\\n", ""))
        if kind == "expansion":
            return " ".join(self.expanded(text))
        return text[1:] if kind == "escape" else text

    def expanded(self, text: str) -> list[str]:
        """Return what stands for an expansion; itself if the script does not say."""
        if text.startswith("$(("):
            number = self.number(text[3:-2])
            return [text if number is None else str(number)]
        match = _BRACED.fullmatch(text.strip("${}") if text[1:2] != "{" else text[2:-1])
        if match is None or text.startswith(("$(", "`")):
            return [text]
        name, index, sign, other = match.groups()
        values = self.script.variables.get(name)
        if sign and "+" in sign:
            return [] if not values else [self.unquoted("double", other.strip("\"'"))]
        if values is None or (sign and ":" in sign and values == [""]):
            if sign is None or "?" in sign:
                return [text]
            values = [self.unquoted("double", other.strip("\"'"))]
            if "=" in sign:
                self.script.variables[name] = values
        if index in ("[@]", "[*]"):
            return values
        at = int(index[1:-1]) if index else 0
        return values[at : at + 1] or [""]

    def number(self, text: str) -> int | None:
        """Return the value of a sum or a product; None if the script does not say."""
        text = _EXPANSION.sub(lambda match: self.expanded(match[0])[0], text)
        text = re.sub(r"[A-Za-z_]\w*", lambda m: self.expanded(f"${{{m[0]}:-{m[0]}}}")[0], text)
        try:
            return _value(ast.parse(text.strip(), mode="eval").body)
        except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
            return None


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp):
        calculate = getattr(operator, _ARITHMETIC[type(node.op).__name__])
        value = int(calculate(_value(node.left), _value(node.right)))
        if abs(value) < 2**63:
            return value
    raise ValueError
