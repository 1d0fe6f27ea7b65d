package strictjson

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// str reads a string, the opening quote being next.
func (p *parser) str() (string, error) {
	p.pos++
	start := p.pos
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case '"':
			s := string(p.data[start:p.pos])
			p.pos++
			return s, nil
		case '\\':
			return p.escapedStr(start)
		default:
			if err := p.plainRune(); err != nil {
				return "", err
			}
		}
	}
	return "", p.fail("the text ends inside a string: close it with a double quote")
}

// escapedStr goes on where the first backslash was met.
func (p *parser) escapedStr(start int) (string, error) {
	buf := append([]byte(nil), p.data[start:p.pos]...)
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case '"':
			p.pos++
			return string(buf), nil
		case '\\':
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			buf = utf8.AppendRune(buf, r)
		default:
			from := p.pos
			if err := p.plainRune(); err != nil {
				return "", err
			}
			buf = append(buf, p.data[from:p.pos]...)
		}
	}
	return "", p.fail("the text ends inside a string: close it with a double quote")
}

// plainRune steps over one character that is not an escape.
func (p *parser) plainRune() error {
	c := p.data[p.pos]
	if c < 0x20 {
		return p.fail("raw control character in a string: write it as \\u%04x", c)
	}
	if c < utf8.RuneSelf {
		p.pos++
		return nil
	}
	r, size := utf8.DecodeRune(p.data[p.pos:])
	if r == utf8.RuneError && size == 1 {
		return p.fail("invalid UTF-8 in a string: encode the text as UTF-8")
	}
	p.pos += size
	return nil
}

// escape reads one escape sequence, a surrogate pair being one.
func (p *parser) escape() (rune, error) {
	if p.pos+1 >= len(p.data) {
		p.pos = len(p.data)
		return 0, p.fail("the text ends inside an escape: complete it")
	}
	c := p.data[p.pos+1]
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		p.pos += 2
		return rune("\"\\/\b\f\n\r\t"[i]), nil
	}
	if c != 'u' {
		return 0, p.fail("unknown escape in a string: JSON knows \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\uXXXX")
	}
	r, ok := p.hex(p.pos + 2)
	if !ok {
		return 0, p.fail("incomplete \\u escape in a string: give four hexadecimal digits")
	}
	if !utf16.IsSurrogate(r) {
		p.pos += 6
		return r, nil
	}
	// Half a pair has no meaning; readers replace it, drop it or keep it.
	low, ok := p.hex(p.pos + 8)
	if !ok || p.data[p.pos+6] != '\\' || p.data[p.pos+7] != 'u' || utf16.DecodeRune(r, low) == utf8.RuneError {
		return 0, p.fail("half a surrogate pair in a string: give both \\u escapes or the character itself")
	}
	p.pos += 12
	return utf16.DecodeRune(r, low), nil
}

// hex reads four hexadecimal digits.
func (p *parser) hex(at int) (rune, bool) {
	if at+4 > len(p.data) {
		return 0, false
	}
	var r rune
	for _, c := range p.data[at : at+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// number reads a number and keeps its text.
func (p *parser) number() (any, error) {
	start := p.pos
	if p.peek() == '-' {
		p.pos++
	}
	switch c := p.peek(); {
	case c == '0':
		p.pos++
		if d := p.peek(); d >= '0' && d <= '9' {
			return nil, p.fail("a number starts with 0: remove the leading zeros")
		}
	case !p.digits():
		return nil, p.unexpected("a digit")
	}
	if p.peek() == '.' {
		p.pos++
		if !p.digits() {
			return nil, p.unexpected("a digit after the decimal point")
		}
	}
	exponent := 0
	if c := p.peek(); c == 'e' || c == 'E' {
		p.pos++
		from := p.pos
		if c := p.peek(); c == '+' || c == '-' {
			p.pos++
		}
		if !p.digits() {
			return nil, p.unexpected("a digit of the exponent")
		}
		var err error
		if exponent, err = strconv.Atoi(string(p.data[from:p.pos])); err != nil {
			return nil, p.fail("a number's exponent is out of range: give a smaller one, or a string")
		}
	}
	return p.checkNumber(string(p.data[start:p.pos]), exponent)
}

// checkNumber refuses what a double can't hold even roughly.
func (p *parser) checkNumber(text string, exponent int) (any, error) {
	if len(text) > maxNumberBytes {
		return nil, p.fail("a number has more than %d characters: give fewer digits, or a string", maxNumberBytes)
	}
	_, err := strconv.ParseFloat(text, 64)
	if exponent < -maxExponent || exponent > maxExponent || errors.Is(err, strconv.ErrRange) {
		return nil, p.fail("a number is beyond ±1.8e308 or closer to 0 than 1e-%d: give another number, or a string", maxExponent)
	}
	return json.Number(text), nil
}

// digits steps over digits and says whether there were any.
func (p *parser) digits() bool {
	start := p.pos
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		p.pos++
	}
	return p.pos > start
}
