package lettasim

import (
	"strconv"
	"strings"
	"unicode"
)

// The vocabulary of scripted agents is a small part of Qwen's vocabulary: the 256 bytes, some words
// that follow a space, and the marks of the chat template. The tokenizer of [Model] has the same
// vocabulary.
const (
	startMark = "<|im_start|>"
	endMark   = "<|im_end|>"
	idNewline = 198
)

var marks = map[string]int32{
	"<|endoftext|>": 151643, startMark: 151644, endMark: 151645, "<tool_call>": 151657, "</tool_call>": 151658,
	"<tool_response>": 151665, "</tool_response>": 151666,
}

// vocabulary lists the words with their token ids.
const vocabulary = `the:279 of:315 and:323 to:311 in:304 is:374 that:429 for:369 it:432 as:438 with:448 on:389
be:387 at:518 by:553 this:419 from:504 are:525 was:572 have:614 not:537 but:714 we:582
so:773 then:1221 first:1156 next:1790 now:1431 step:3019 number:1372 value:897 result:1102
sum:2629 answer:4226 check:1779 add:912 two:1378 three:2326 one:825 more:803 than:1091
which:892 need:1184 let:1077 total:2790 carefully:15516 again:1549 before:1573 after:1283
between:1948 each:1817 both:2176 known:3881 given:2661 find:1477 use:990 tool:5392 call:1618
write:3270 think:1744 done:2814 because:1576 same:1852 only:1172 other:1008 time:882
work:975 right:1290 left:2115 part:949 simple:4285 clear:2797`

var words, wordIDs = parseWords(vocabulary)

func parseWords(list string) (words []string, ids map[string]int32) {
	ids = map[string]int32{}
	for entry := range strings.FieldsSeq(list) {
		word, number, _ := strings.Cut(entry, ":")
		id, _ := strconv.Atoi(number) // cannot fail, because vocabulary is a constant
		words, ids[word] = append(words, word), int32(id)
	}
	return words, ids
}

// byteID returns the token id of a byte. The ids follow the order of GPT-2's alphabet: the bytes
// that are printable in Latin-1, then the other bytes.
func byteID(b byte) int32 {
	c := int32(b)
	switch {
	case c >= '!' && c <= '~':
		return c - '!'
	case c >= 0xa1 && c <= 0xac:
		return c - 0xa1 + 94
	case c >= 0xae:
		return c - 0xae + 106
	case c <= ' ':
		return c + 188
	case c == 0xad:
		return 255
	}
	return c - 0x7f + 221
}

// appendText appends the tokens of text. Each mark, each known word with the space before it, and
// each other byte is one token.
func appendText(ids []int32, text string) []int32 {
	for text != "" {
		n, id := 1, byteID(text[0])
		switch text[0] {
		case '<':
			if end := strings.IndexByte(text, '>'); end > 0 {
				if mark, known := marks[text[:end+1]]; known {
					n, id = end+1, mark
				}
			}
		case ' ':
			end := strings.IndexFunc(text[1:], func(r rune) bool { return !unicode.IsLetter(r) })
			if end < 0 {
				end = len(text) - 1
			}
			if word, known := wordIDs[text[1:1+end]]; known {
				n, id = 1+end, word
			}
		}
		ids, text = append(ids, id), text[n:]
	}
	return ids
}
