"""The functions that Kubernetes adds to CEL, as far as rules of custom resources commonly use them.

Quantities, IP addresses, CIDRs, URLs and semantic versions are maps inside the CEL library, with one key that says
what they are; a rule sees no difference unless it asks for their type.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from cel_expr_python import cel

from muster.sim.quantities import canonical_quantity, quantity_value

_T = cel.Type
_QUANTITY, _SEMVER, _IP, _CIDR, _URL = "quantity", "semver", "ip", "cidr", "url"
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z.-]+)?", re.ASCII
)


def functions() -> list[Any]:
    """Every function, for the environment in which rules are compiled."""
    dyn, text, truth, whole = _T.DYN, _T.STRING, _T.BOOL, _T.INT
    some, thing = _T.List(dyn), _T.Map(text, text)
    return [
        _plain("quantity", thing, text, _quantity),
        _plain("isQuantity", truth, text, _works(_quantity)),
        _plain("semver", thing, text, _semver),
        _plain("isSemver", truth, text, _works(_semver)),
        _plain("ip", thing, text, _ip),
        _plain("isIP", truth, text, _works(_ip)),
        _plain("cidr", thing, text, _cidr),
        _plain("isCIDR", truth, text, _works(_cidr)),
        _plain("url", thing, text, _url),
        _plain("isURL", truth, text, _works(_url)),
        _member("compareTo", whole, _compared, (thing, thing)),
        _member("isGreaterThan", truth, lambda a, b: _compared(a, b) > 0, (thing, thing)),
        _member("isLessThan", truth, lambda a, b: _compared(a, b) < 0, (thing, thing)),
        _member("sign", whole, lambda a: (_number(a) > 0) - (_number(a) < 0), (thing,)),
        _member("isInteger", truth, lambda a: _number(a).denominator == 1, (thing,)),
        _member("asInteger", whole, lambda a: int(_number(a)), (thing,)),
        _member("asApproximateFloat", _T.DOUBLE, lambda a: float(_number(a)), (thing,)),
        _member("add", thing, lambda a, b: _quantity_of(_number(a) + _amount(b)), (thing, thing), (thing, whole)),
        _member("sub", thing, lambda a, b: _quantity_of(_number(a) - _amount(b)), (thing, thing), (thing, whole)),
        _member("major", whole, lambda a: _rank(a)[0][0], (thing,)),
        _member("minor", whole, lambda a: _rank(a)[0][1], (thing,)),
        _member("patch", whole, lambda a: _rank(a)[0][2], (thing,)),
        _member("family", whole, lambda a: ipaddress.ip_address(a[_IP]).version, (thing,)),
        _member("isLoopback", truth, lambda a: ipaddress.ip_address(a[_IP]).is_loopback, (thing,)),
        _member("containsIP", truth, _contains_ip, (thing, thing), (thing, text)),
        _member("prefixLength", whole, lambda a: ipaddress.ip_network(a[_CIDR], strict=False).prefixlen, (thing,)),
        _member("getScheme", text, lambda a: urlsplit(a[_URL]).scheme, (thing,)),
        _member("getHost", text, lambda a: urlsplit(a[_URL]).netloc.rpartition("@")[2], (thing,)),
        _member("getHostname", text, lambda a: urlsplit(a[_URL]).hostname or "", (thing,)),
        _member("getPort", text, lambda a: str(urlsplit(a[_URL]).port or ""), (thing,)),
        _member("getEscapedPath", text, lambda a: urlsplit(a[_URL]).path, (thing,)),
        _member("isSorted", truth, lambda items: all(a <= b for a, b in pairwise(items)), (some,)),
        _member("sum", dyn, sum, (some,)),
        _member("min", dyn, min, (some,)),
        _member("max", dyn, max, (some,)),
        _member("find", text, lambda value, pattern: next(_matches(value, pattern), ""), (text, text)),
        _member("findAll", _T.List(text), lambda value, pattern: list(_matches(value, pattern)), (text, text)),
        _declared("sets.contains", truth, lambda a, b: _within(b, a), ((some, some),), is_member=False),
        _declared("sets.intersects", truth, lambda a, b: any(x in a for x in b), ((some, some),), is_member=False),
        _declared(
            "sets.equivalent", truth, lambda a, b: _within(a, b) and _within(b, a), ((some, some),), is_member=False
        ),
    ]


def _plain(name: str, result: Any, parameter: Any, implementation: Callable[..., Any]) -> Any:
    return _declared(name, result, implementation, ((parameter,),), is_member=False)


def _member(name: str, result: Any, implementation: Callable[..., Any], *overloads: tuple[Any, ...]) -> Any:
    return _declared(name, result, implementation, overloads, is_member=True)


def _declared(
    name: str,
    result: Any,
    implementation: Callable[..., Any],
    overloads: tuple[tuple[Any, ...], ...],
    *,
    is_member: bool,
) -> Any:
    return cel.FunctionDecl(
        name,
        [
            cel.Overload(
                id=f"kubernetes_{name.replace('.', '_')}_{at}",
                return_type=result,
                parameters=list(parameters),
                is_member=is_member,
                impl=implementation,
            )
            for at, parameters in enumerate(overloads)
        ],
    )


def _within(some: list[Any], all_of: list[Any]) -> bool:
    return all(item in all_of for item in some)


def _works(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


def _quantity(text: str) -> dict[str, str]:
    stored = canonical_quantity(text)
    if stored is None:
        raise ValueError("unable to parse quantity's suffix")
    return _quantity_of(Fraction(quantity_value(stored)))


def _quantity_of(value: Fraction) -> dict[str, str]:
    return {_QUANTITY: str(value)}


def _number(value: Any) -> Fraction:
    if not isinstance(value, dict) or _QUANTITY not in value:
        raise ValueError("no such overload: not a quantity")
    return Fraction(value[_QUANTITY])


def _amount(value: Any) -> Fraction:
    return Fraction(value) if isinstance(value, int) else _number(value)


def _semver(text: str) -> dict[str, str]:
    if not _VERSION.fullmatch(text):
        raise ValueError(f"invalid semantic version {text!r}")
    return {_SEMVER: text}


def _compared(a: Any, b: Any) -> int:
    left, right = (_rank(a), _rank(b)) if _SEMVER in a else (_number(a), _number(b))
    return (left > right) - (left < right)


def _rank(value: Any) -> Any:
    """What versions are compared by."""
    core, _, before = value[_SEMVER].partition("+")[0].partition("-")
    # A number sorts before a word, and a pre-release before its release.
    ranked = tuple((not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in before.split("."))
    return (tuple(int(part) for part in core.split(".")), not before, ranked)


def _ip(text: str) -> dict[str, str]:
    return {_IP: str(ipaddress.ip_address(text))}


def _cidr(text: str) -> dict[str, str]:
    if "/" not in text:
        raise ValueError("a CIDR has a prefix length")
    ipaddress.ip_interface(text)
    return {_CIDR: text}


def _contains_ip(network: Any, address: Any) -> bool:
    text = address[_IP] if isinstance(address, dict) else str(address)
    return ipaddress.ip_address(text) in ipaddress.ip_network(network[_CIDR], strict=False)


def _url(text: str) -> dict[str, str]:
    parts = urlsplit(text)
    if not (parts.scheme or text.startswith("/")) or " " in text:
        raise ValueError(f"invalid URL {text!r}")
    return {_URL: text}


def _matches(value: str, pattern: str) -> Iterator[str]:
    return (found[0] for found in re.finditer(pattern, value))
