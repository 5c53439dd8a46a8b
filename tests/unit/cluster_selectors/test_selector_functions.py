"""Functions of CEL and of Kubernetes: each line is true."""

import pytest

from unit.cluster_selectors.asking import failure, verdict

TRUE = r"""
-5 / 2 == -2 && -5 % 3 == -2 && 5 % -3 == 2
1 < 2.5 && 2u > 1 && dyn(1u) == 1 && 1 == dyn(1.0)
0.0 / 0.0 != 0.0 && 1.0 / 0.0 > 5.0
-9223372036854775808 < 0 && 18446744073709551615u > 0u && 0x1F == 31 && .5e1 == 5.0
'é'.size() == 1 && bytes('é') == b'\xc3\xa9' && '\u00e9' == 'é' && '\101' == 'A'
r'\d' == '\\d' && '''a'b''' == "a'b" && b'\377' == b'\xff'
dyn([1, 2]) == [1.0, 2.0] && dyn({'a': 1}) == {'a': 1.0} && {1: 'a'}[dyn(1u)] == 'a' && {1: 'a'}[dyn(1.0)] == 'a'
dyn(1) in [1u, 2u] && !('b' in {'a': 1}) && !(dyn(true) in {1: 'a'})
dyn(1) != dyn('a') && !(dyn(1) == dyn('a'))
[1, 0].exists(x, 1 / x > 0) && [0, 1].exists(x, 1 / x > 0) && ![0, 1].all(x, 1 / x > 5)
[1, 2, 3].map(x, x > 1, x * 2) == [4, 6] && [1, 2, 3].filter(x, x > 1) == [2, 3]
{'a': 1}.transformMap(k, v, v * 2) == {'a': 2} && {'a': 'b'}.transformMapEntry(k, v, {v: k}) == {'b': 'a'}
[3, 4].transformList(i, v, i * v) == [0, 4] && [3, 4].exists(i, v, i == 1 && v == 4)
[1, 2].map(x, cel.bind(y, x * 2, y + x)) == [3, 6] && cel.bind(x, 1 / 0, true)
'abc'.charAt(3) == '' && 'abcabc'.indexOf('c', 3) == 5 && 'abcabc'.lastIndexOf('c', 4) == 2
'a,b,c'.split(',', 2) == ['a', 'b,c'] && ''.split('') == [] && 'abc'.split('') == ['a', 'b', 'c']
'aXbX'.replace('X', '-', 1) == 'a-bX' && 'abc'.replace('', '-') == '-a-b-c-' && ' a '.trim() == 'a'
'aBÉ'.upperAscii() == 'ABÉ' && ['a', 'b'].join('-') == 'a-b' && 'abc'.substring(1, 2) == 'b'
strings.quote("a\"b\n") == '"a\\"b\\n"'
string(1.0) == '1' && string(1000000.0) == '1e+06' && string(0.00001) == '1e-05' && string(-1.5) == '-1.5'
string(duration('1500ms')) == '1.5s' && duration('1h') + duration('30m') == duration('90m')
duration('3730s').getMinutes() == 62 && duration('-90s').getMinutes() == -1
int(5.9) == 5 && int(duration('1us')) == 1000 && uint(3.7) == 3u && bool('T')
type(1) == int && type(type(1)) == type && type(null) == null_type && type(optional.none()) == optional_type
optional.of(1).or(optional.of(2)).value() == 1 && optional.none().orValue(2) == 2
!optional.ofNonZeroValue('').hasValue() && optional.ofNonZeroValue('a').hasValue()
[?optional.of(1), ?optional.none(), 2] == [1, 2] && {?'a': optional.none(), 'b': 1} == {'b': 1}
optional.of(2).optMap(x, x * 2).value() == 4 && optional.of(2).optFlatMap(x, optional.of(x)).value() == 2
[optional.of(1), optional.none()].unwrapOpt() == [1] && [1, 2].first().value() == 1 && ![].last().hasValue()
{'a': {'b': 1}}.?a.b.value() == 1 && !{'a': {'b': 1}}.?c.b.hasValue() && !optional.none().optMap(x, x).hasValue()
[1, 2, 3].isSorted() && [1, 2].sum() == 3 && [2, 1].min() == 1 && [1.5, 2.5].max() == 2.5 && [1, 1].lastIndexOf(1) == 1
[3, 1, 2].sort() == [1, 2, 3] && [3, 1].sortBy(x, -x) == [3, 1] && [1, 1].distinct() == [1] && [1, 2].reverse() == [2, 1]
lists.range(3) == [0, 1, 2] && [[1], [2]].flatten() == [1, 2] && [1, 2, 3].slice(1, 2) == [2]
sets.contains([1, 2], [1]) && sets.equivalent([1, 2], [2, 1, 1]) && !sets.intersects([1], [2])
'123 abc 456'.findAll('[0-9]*', 2) == ['123', ''] && 'abc 123'.find('[0-9]+') == '123' && 'abc'.matches('^a')
quantity('1Gi').asInteger() == 1073741824 && quantity('1e3') == quantity('1k') && sign(quantity('-1')) == -1
!quantity('1000m').isInteger() && quantity('50k').sub(20000).asApproximateFloat() == 30000.0 && !isQuantity('1.5K')
semver('1.2.3') == semver('1.2.3+b') && semver('v1.2', true) == semver('1.2.0') && !isSemver('1.2') && isSemver('01.2.3', true)
semver('1.2.3').major() == 1 && semver('1.0.0-alpha').isLessThan(semver('1.0.0')) && semver('1.0.0').compareTo(semver('1.0.0')) == 0
ip('10.0.0.1').family() == 4 && string(ip('::1')) == '::1' && type(ip('::1')) == net.IP && !isIP('127.0.0.01') && !isIP('fe80::1%eth0')
!isIP('::ffff:1.2.3.4') && !ip.isCanonical('2001:DB8::1') && ip('224.0.0.1').isLinkLocalMulticast() && ip('fe80::1').isLinkLocalUnicast()
cidr('10.0.0.0/8').containsIP('10.1.1.1') && cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !isCIDR('10.0.0.0/33')
cidr('10.0.0.1/8').masked() == cidr('10.0.0.0/8') && cidr('10.0.0.1/8').ip() == ip('10.0.0.1') && cidr('::/0').prefixLength() == 0
url('https://a.b:80/c?d=e&d=f').getQuery() == {'d': ['e', 'f']} && url('https://[::1]:80/').getHostname() == '::1'
url('https://a.b:80/').getHost() == 'a.b:80' && url('/p q').getEscapedPath() == '/p%20q' && url('/p').getScheme() == ''
!isURL('https://a:b:c/') && !isURL('../x') && isURL('https://user:pass@example.com:80/path?query=val#fragment')
!format.dns1123Label().validate('a').hasValue() && format.named('dns1035Label').value().validate('1').hasValue()
!format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue() && format.date().validate('2021-02-30').hasValue()
!format.qualifiedName().validate('a.b/c').hasValue() && format.byte().validate('a').hasValue() && !format.uri().validate('/a').hasValue()
"""


@pytest.mark.parametrize("expression", TRUE.strip().splitlines())
def test_functions_return_what_kubernetes_returns(expression: str) -> None:
    assert verdict(expression)


@pytest.mark.parametrize(
    "expression, message",
    [
        ("'abc'.substring(2, 1) == ''", "invalid substring range"),
        ("'abc'.charAt(4) == ''", "index out of range: 4"),
        ("quantity('1.5K') == quantity('1')", "not a quantity"),
        ("semver('1.2') == semver('1.2.0')", "No Major.Minor.Patch elements found"),
        ("cidr('10.0.0.0/8').containsIP('x')", "parse error"),
        ("optional.none().value() == 1", "optional.none() dereference"),
        ("[].min() == 1", "min called on empty list"),
        ("-9223372036854775808 % -1 == 0", "integer overflow"),
        ("[1, 2].slice(1, 5) == []", "list is length 2"),
        ("dyn('x').isSorted()", "no such overload"),
        ("[1, 1].transformMapEntry(i, v, {v: i}).size() == 1", "already exists"),
    ],
)
def test_errors_of_functions_name_the_wrong_argument(expression: str, message: str) -> None:
    assert message in failure(expression)
