package lettasim

import (
	"slices"
	"strconv"
	"strings"
)

// The vocabulary of scripted agents is a small part of Qwen's: single bytes, some control tokens,
// and some words after a space. Its ids decode to the text, though the real tokenizer would often
// choose longer tokens.
const (
	idStart        = 151644 // <|im_start|>
	idEnd          = 151645 // <|im_end|>
	idCall         = 151657 // <tool_call>
	idCallEnd      = 151658 // </tool_call>
	idResponse     = 151665 // <tool_response>
	idResponseEnd  = 151666 // </tool_response>
	idSpace        = 220
	idNewline      = 198
	firstPrintable = '!' // id 0; the others follow in order
)

type word struct {
	text string
	id   int32
}

// vocabulary has the words, with the ids of their tokens.
const vocabulary = `the:279 of:315 and:323 to:311 in:304 is:374 that:429 for:369 it:432 as:438 with:448 on:389
be:387 at:518 by:553 this:419 from:504 are:525 was:572 have:614 not:537 but:714 we:582
so:773 then:1221 first:1156 next:1790 now:1431 step:3019 number:1372 value:897 result:1102
sum:2629 answer:4226 check:1779 add:912 two:1378 three:2326 one:825 more:803 than:1091
which:892 need:1184 let:1077 total:2790 carefully:15516 again:1549 before:1573 after:1283
between:1948 each:1817 both:2176 known:3881 given:2661 find:1477 use:990 tool:5392 call:1618
write:3270 think:1744 done:2814 because:1576 same:1852 only:1172 other:1008 time:882
work:975 right:1290 left:2115 part:949 simple:4285 clear:2797`

var words = parseWords(vocabulary)

func parseWords(list string) (out []word) {
	for entry := range strings.FieldsSeq(list) {
		text, number, _ := strings.Cut(entry, ":")
		id, _ := strconv.Atoi(number) // the list is a constant
		out = append(out, word{text, int32(id)})
	}
	return out
}

// appendText appends the ids of a text, one per byte. It replaces bytes that are not printable
// ASCII by '?'; scripted agents do not write them.
func appendText(ids []int32, text string) []int32 {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == ' ':
			ids = append(ids, idSpace)
		case c == '\n':
			ids = append(ids, idNewline)
		case c >= firstPrintable && c <= '~':
			ids = append(ids, int32(c-firstPrintable))
		default:
			ids = append(ids, '?'-firstPrintable)
		}
	}
	return ids
}

func appendIDs(dst []byte, ids []int32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(id), 10)
	}
	return append(dst, ']')
}

// logprob returns the scripted engine's log-probability: mostly near 0, never below -12.
func logprob(position int, id int32) float32 {
	u := float64(mix(uint64(position)<<32^uint64(uint32(id))^0x5bd1e995)>>40) / (1 << 24)
	u *= u
	return 0 - float32(12*u*u*u) // never -0
}

// appendAnswerFloat and appendTraceFloat format a double as the server's answers and traces do.
func appendAnswerFloat(dst []byte, f float32) []byte { return appendFloat(dst, f, 1e-5) }

func appendTraceFloat(dst []byte, f float32) []byte { return appendFloat(dst, f, 1e-4) }

func appendFloat(dst []byte, f float32, plainFrom float64) []byte {
	x := float64(f)
	switch {
	case x != x:
		return append(dst, "null"...)
	case x == 0:
		return append(dst, "0.0"...)
	case x > -plainFrom && x < plainFrom:
		return strconv.AppendFloat(dst, x, 'e', -1, 64)
	}
	n := len(dst)
	dst = strconv.AppendFloat(dst, x, 'f', -1, 64)
	if slices.Contains(dst[n:], '.') {
		return dst
	}
	return append(dst, ".0"...)
}
