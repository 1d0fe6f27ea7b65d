package strictjson

import (
	"fmt"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// ellipsis marks a preview that was cut.
const ellipsis = "…"

// Preview shows data to a person who has to judge it: at most max bytes, ending in
// "…" where it was cut, with every character that is invisible or changes how its
// neighbours look (controls, bidirectional overrides, zero-width characters, odd
// spaces, fillers) written as a \uXXXX escape. Letters that merely look alike are
// shown as they are.
func Preview(data []byte, max int) string {
	var out []byte
	room := max - len(ellipsis)
	fits := 0 // the longest prefix of out that leaves room for the ellipsis
	for rest := data; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		rest = rest[size:]
		if visible(r) && (r != utf8.RuneError || size > 1) {
			out = utf8.AppendRune(out, r)
		} else {
			out = appendEscaped(out, r)
		}
		if len(out) <= room {
			fits = len(out)
		}
		if len(out) > max {
			if room < 0 {
				return ""
			}
			return string(out[:fits]) + ellipsis
		}
	}
	return string(out)
}

// visible is true for characters that a reader sees for what they are.
func visible(r rune) bool {
	if r == '\u2800' { // the empty braille pattern, a blank that counts as a symbol
		return false
	}
	return unicode.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

func appendEscaped(out []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return fmt.Appendf(out, `\u%04x\u%04x`, high, low)
	}
	return fmt.Appendf(out, `\u%04x`, r)
}
