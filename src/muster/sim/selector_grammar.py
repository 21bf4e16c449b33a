"""Reading label and field selectors, with the error texts of a Kubernetes API server (apimachinery 1.37)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from muster.sim.api_status import StatusError, bad_request

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LONGEST_NAME, _LONGEST_PREFIX = 63, 253
_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_PREFIX_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


class Operator(Enum):
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"
    GREATER = "gt"
    LESS = "lt"


@dataclass(frozen=True)
class Term:
    """One term of a selector as it was written."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


class _Word(str):
    """An identifier, as opposed to punctuation with the same text. The end of the text is an empty `str`."""


_PUNCTUATION = re.compile(r"\s*(?:(?P<mark>==|!=|[=!(),<>])|(?P<word>[^=!(),<>\s]+)|$)")
_OPERATORS = {
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GREATER,
    "<": Operator.LESS,
}


def parse_label_terms(selector: str) -> list[Term]:
    """Parse `a=b,c!=d,e in (f,g),h,!i,j>1`. Raises StatusError 400 that names what is wrong."""
    return _LabelParser(selector).terms()


class _LabelParser:
    def __init__(self, selector: str) -> None:
        self._tokens: list[str] = []
        at = 0
        while at < len(selector) and (found := _PUNCTUATION.match(selector, at)) is not None:
            at = found.end()
            if found["mark"]:
                self._tokens.append(found["mark"])
            elif found["word"]:
                self._tokens.append(_Word(found["word"]))
            else:
                break
        self._tokens.reverse()

    def _peek(self) -> str:
        return self._tokens[-1] if self._tokens else ""

    def _next(self) -> str:
        return self._tokens.pop() if self._tokens else ""

    def terms(self) -> list[Term]:
        terms: list[Term] = []
        if not self._tokens:
            return terms
        while True:
            ahead = self._peek()
            if not isinstance(ahead, _Word) and ahead != "!":
                raise bad_request(f"found '{ahead}', expected: !, identifier, or 'end of string'")
            terms.append(self._term())
            end = self._next()
            if not end:
                return terms
            if isinstance(end, _Word) or end != ",":
                raise bad_request(f"found '{end}', expected: ',' or 'end of string'")
            ahead = self._peek()
            if not isinstance(ahead, _Word) and ahead != "!":
                raise bad_request(f"found '{ahead}', expected: identifier after ','")

    def _term(self) -> Term:
        read = self._next()
        absent = not isinstance(read, _Word) and read == "!"
        key = self._next() if absent else read
        if not isinstance(key, _Word):
            raise _unparsable(f"found '{key}', expected: identifier")
        _check_key(key)
        if absent:
            return Term(str(key), Operator.DOES_NOT_EXIST)
        if self._peek() in ("", ",") and not isinstance(self._peek(), _Word):
            return Term(str(key), Operator.EXISTS)
        return self._comparison(str(key))

    def _comparison(self, key: str) -> Term:
        read = self._next()
        operator = _OPERATORS.get(read)
        if operator is None:
            raise _unparsable(f"found '{read}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._set() if isinstance(read, _Word) else [self._exact()]
        ordered = operator in (Operator.GREATER, Operator.LESS)
        if ordered and not re.fullmatch(r"[+-]?\d{1,18}", values[0], re.ASCII):
            rule = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise _unparsable(f'values[0]: Invalid value: "{values[0][:100]}": {rule}')
        values = sorted(dict.fromkeys(values))
        for at, value in enumerate(values):
            _check_value(f"values[{at}][{key}]", value)
        return Term(key, operator, tuple(values))

    def _exact(self) -> str:
        if self._peek() in ("", ",") and not isinstance(self._peek(), _Word):
            return ""
        read = self._next()
        if not isinstance(read, _Word):
            raise _unparsable(f"found '{read}', expected: identifier")
        return str(read)

    def _set(self) -> list[str]:
        read = self._next()
        if isinstance(read, _Word) or read != "(":
            raise _unparsable(f"found '{read}' expected: '('")
        ahead = self._peek()
        if not isinstance(ahead, _Word) and ahead not in (",", ")"):
            raise _unparsable(f"found '{ahead}', expected: ',', ')' or identifier")
        values: list[str] = []
        last = "("
        while True:
            read = self._next()
            if isinstance(read, _Word):
                if isinstance(last, _Word):
                    raise _unparsable(f"found '{read}', expected: ',' or ')'")
                values.append(str(read))
            elif read in (",", ")"):
                if not isinstance(last, _Word):
                    values.append("")
                if read == ")":
                    return values
            else:
                expected = "',' or ')'" if isinstance(last, _Word) else "',', or identifier"
                raise _unparsable(f"found '{read}', expected: {expected}")
            last = read


def _check_key(key: str) -> None:
    prefix, slash, name = key.partition("/")
    if "/" in name:
        example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        raise _wrong("<nil>", key, f"a valid label key {_NAME_RULE} {example}")
    if slash:
        if not prefix:
            raise _wrong("<nil>", key, "prefix part must be non-empty")
        if len(prefix) > _LONGEST_PREFIX:
            raise _wrong("<nil>", key, f"prefix part must be no more than {_LONGEST_PREFIX} bytes")
        if not _SUBDOMAIN.fullmatch(prefix):
            raise _wrong("<nil>", key, f"prefix part {_PREFIX_RULE}")
    else:
        name = key
    if len(name.encode()) > _LONGEST_NAME:
        raise _wrong("<nil>", key, f"name part must be no more than {_LONGEST_NAME} bytes")
    if not name:
        raise _wrong("<nil>", key, "name part must be non-empty")
    if not _NAME.fullmatch(name):
        raise _wrong("<nil>", key, f"name part {_NAME_RULE}")


def _check_value(path: str, value: str) -> None:
    if len(value.encode()) > _LONGEST_NAME:
        raise _wrong(path, value, f"must be no more than {_LONGEST_NAME} bytes")
    if value and not _NAME.fullmatch(value):
        raise _wrong(path, value, _VALUE_RULE)


def _wrong(path: str, value: str, rule: str) -> StatusError:
    return _unparsable(f'{path}: Invalid value: "{value[:300]}": {rule}')


def _unparsable(why: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {why}")


@dataclass(frozen=True)
class FieldTerm:
    """`path` is the field label as written."""

    path: str
    equal: bool
    value: str


def parse_field_terms(selector: str) -> list[FieldTerm]:
    """Parse `metadata.name=x,spec.nodeName!=y`. A backslash makes a comma, an equals sign or itself plain text.

    Raises StatusError 400.
    """
    terms = []
    for text in _split_fields(selector):
        if not text:
            continue
        found = re.search("!=|==|=", text)
        if found is None:
            raise bad_request(f"invalid selector: '{selector}'; can't understand '{text}'")
        terms.append(FieldTerm(text[: found.start()], found[0] != "!=", _unescaped(text[found.end() :])))
    return terms


def _split_fields(selector: str) -> list[str]:
    return [part for part in re.findall(r"(?s)((?:\\.|[^,\\]|\\$)*)(?:,|$)", selector) if part]


def _unescaped(value: str) -> str:
    found, at = [], 0
    while at < len(value):
        character = value[at]
        if character == "\\":
            escaped = value[at + 1 : at + 2]
            if escaped not in (",", "=", "\\") or not escaped:
                raise bad_request(f"invalid field selector: invalid escape sequence: \\{escaped}")
            found.append(escaped)
            at += 2
            continue
        if character == "=":
            raise bad_request(f"invalid field selector: unescaped character in value: {ord(character)}")
        found.append(character)
        at += 1
    return "".join(found)
