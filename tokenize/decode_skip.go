package tokenize

import "math/bits"

// skip validates and discards one value of any type.
func (d *Decoder) skip() error {
	switch c := d.space(); c {
	case '"':
		d.i++
		return d.skipString()
	case '{':
		return d.object("an object", d.skipMember)
	case '[':
		return d.array("an array", d.skipElement)
	case 't':
		return d.literal("true")
	case 'f':
		return d.literal("false")
	case 'n':
		return d.literal("null")
	default:
		if c != '-' && c-'0' > 9 {
			return d.expected("a value", c)
		}
		_, err := d.number()
		return err
	}
}

func (d *Decoder) skipMember() error {
	d.i++
	if err := d.skipString(); err != nil {
		return err
	}
	if err := d.colon(); err != nil {
		return err
	}
	return d.skip()
}

func (d *Decoder) skipElement(int) error {
	d.skipChoices()
	return d.skip()
}

func (d *Decoder) literal(word string) error {
	d.need(len(word))
	for k := range len(word) {
		if k == d.n-d.i {
			return d.end()
		}
		if d.buf[d.i+k] != word[k] {
			d.i += k
			return d.fail(ErrSyntax, "expected "+word)
		}
	}
	d.i += len(word)
	return nil
}

// The parts of an element of logprobs.content, as the server writes it. They are split so that each
// comparison covers at most 16 bytes. A whole element looks like this:
//
//	{"token":"785","bytes":null,"logprob":-0.24566778540611267,"top_logprobs":[]}
const (
	choiceHead   = `{"token":"`
	choiceBytes  = `","bytes":null,"`
	choiceNumber = `logprob":`
	choiceTop    = `,"top_logprobs":`
	choiceEnd    = `[]},`
	// choiceWindow is larger than the number of bytes that one pass of skipChoices reads.
	choiceWindow = 128
)

// skipChoices skips elements of logprobs.content, each with the comma after it, as long as they
// have the format above. It makes the same checks as skip but is several times faster. This matters
// because logprobs repeats the last call and takes up half to two thirds of a reply. skipChoices
// stops before the first element with another format and before the last element. d.i is then at
// the start of a value.
func (d *Decoder) skipChoices() {
	if d.depth+1 >= d.cfg.MaxDepth {
		return
	}
	for {
		d.space()
		if d.n-d.i < choiceWindow && !d.need(choiceWindow) {
			return
		}
		b := d.buf[:d.n]
		i := d.i
		for i+choiceWindow <= len(b) {
			next := skipChoice(b[i : i+choiceWindow])
			if next == 0 {
				d.i = i
				return
			}
			i += next
		}
		if i == d.i {
			return
		}
		d.i = i
	}
}

// skipChoice returns the length of the element at the start of b, including its comma, or 0 if the
// element has another format. b must have at least choiceWindow bytes.
func skipChoice(b []byte) int {
	_ = b[choiceWindow-1]
	if string(b[:len(choiceHead)]) != choiceHead {
		return 0
	}
	j := len(choiceHead)
	w := load64(b, j)
	m := special(w)
	if (m|w)&highBits == 0 {
		j += 8
		w = load64(b, j)
		m = special(w)
	}
	k := bits.TrailingZeros64(m) >> 3
	if m == 0 || w&(1<<(8*uint(k)&63)-1)&highBits != 0 {
		return 0
	}
	j += k
	if string(b[j:j+len(choiceBytes)]) != choiceBytes {
		return 0
	}
	j += len(choiceBytes)
	if string(b[j:j+len(choiceNumber)]) != choiceNumber {
		return 0
	}
	j += len(choiceNumber)
	if b[j] == '-' {
		j++
	}
	if b[j]-'0' > 9 || b[j+1] != '.' || b[j+2]-'0' > 9 {
		return 0
	}
	j += 2
	for range 3 {
		k := leadingDigits(load64(b, j) ^ zeros)
		j += k
		if k < 8 {
			break
		}
	}
	if b[j] == 'e' && b[j+1] == '-' && b[j+2]-'0' <= 9 {
		j += 3
		if b[j]-'0' <= 9 {
			j++
		}
	}
	if string(b[j:j+len(choiceTop)]) != choiceTop {
		return 0
	}
	j += len(choiceTop)
	if string(b[j:j+len(choiceEnd)]) != choiceEnd {
		return 0
	}
	j += len(choiceEnd)
	if b[j] == ' ' {
		j++
	}
	return j
}
