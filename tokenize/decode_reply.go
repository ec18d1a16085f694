package tokenize

import "cmp"

// reply decodes the whole reply, which is one object with nothing after it.
func (d *Decoder) reply() error {
	d.out.Rest = append(d.out.Rest, '{')
	seenTurns := false
	err := d.object("an object", func() error {
		at := d.offset()
		restLen := len(d.out.Rest)
		if restLen > 1 {
			d.out.Rest = append(d.out.Rest, ',')
		}
		d.keep = d.i
		if err := d.readKey(); err != nil {
			return err
		}
		switch string(d.key) {
		case "turns":
			d.dropRest(restLen)
			if seenTurns {
				return below(&DecodeError{Offset: at, Err: ErrDuplicateKey}, "turns")
			}
			seenTurns = true
			err := d.colon()
			if err == nil {
				err = d.turns()
			}
			return below(err, "turns") // d.key has been overwritten by now
		case "logprobs":
			d.dropRest(restLen)
		}
		err := d.colon()
		if err == nil {
			err = d.skip()
		}
		if err == nil && d.keep >= 0 {
			d.flushRest()
			d.keep = -1
			if d.restOver {
				err = &DecodeError{Offset: at, Err: limitError("MaxRestBytes", int64(d.cfg.MaxRestBytes))}
			}
		}
		if err != nil {
			return below(err, string(d.key))
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.out.Rest = append(d.out.Rest, '}')
	if c := d.space(); c != 0 {
		return d.fail(ErrSyntax, "expected the end of the reply")
	}
	if d.readErr != nil || d.over {
		return d.end()
	}
	return nil
}

// dropRest removes a key that does not belong in Rest. The parameter length is the length of Rest
// before the key.
func (d *Decoder) dropRest(length int) {
	d.keep, d.restOver = -1, false // restOver can be set because a copied part of the key exceeded MaxRestBytes
	d.out.Rest = d.out.Rest[:length]
}

// readKey reads a key into d.key. buf[i] must be its opening quote.
func (d *Decoder) readKey() (err error) {
	d.i++
	d.key, err = d.str(d.key[:0], maxKeyBytes)
	return err
}

func (d *Decoder) colon() error {
	if c := d.space(); c != ':' {
		return d.expected("':'", c)
	}
	d.i++
	return nil
}

func (d *Decoder) turns() error {
	if d.space() == 'n' {
		return d.literal("null")
	}
	d.out.HasTurns = true
	return d.array("a list of turns or null", func(k int) error {
		if k == d.cfg.MaxTurns {
			return belowIndex(&DecodeError{Offset: d.offset(), Err: limitError("MaxTurns", int64(k))}, k)
		}
		return belowIndex(d.turn(), k)
	})
}

// turnFields lists the keys of a turn that are decoded. Only role is required.
var turnFields = [...]string{"role", "input_ids", "output_ids", "output_token_logprobs", "content", "tool_name"}

// turn decodes one element of `turns`. The keys can come in any order.
func (d *Decoder) turn() error {
	start := d.offset()
	t := turnSpan{prompt: noSpan, output: noSpan, logprobs: noSpan, content: noSpan, tool: noSpan, mismatch: -1}
	// The ids of the triples, if output_token_logprobs came before output_ids.
	early := noSpan
	var seen uint // bit i is set once turnFields[i] has been read
	err := d.object("a turn", func() error {
		at := d.offset()
		if err := d.readKey(); err != nil {
			return err
		}
		name := ""
		for i, field := range turnFields {
			if string(d.key) != field {
				continue
			}
			name = field // d.key can be overwritten before an error is returned
			if seen>>i&1 != 0 {
				return below(&DecodeError{Offset: at, Err: ErrDuplicateKey}, name)
			}
			seen |= 1 << i
		}
		err := d.colon()
		if err == nil {
			err = d.turnValue(name, &t, &early)
		}
		if err != nil {
			return below(err, cmp.Or(name, string(d.key)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if seen&1 == 0 {
		return &DecodeError{Offset: start, Err: &detailError{ErrSchema, "turn without a role"}}
	}
	if early.lo >= 0 && t.output.lo >= 0 {
		t.mismatch = firstMismatch(d.out.ids[t.output.lo:t.output.hi], d.out.ids[early.lo:early.hi])
	}
	d.out.spans = append(d.out.spans, t)
	return nil
}

func (d *Decoder) turnValue(name string, t *turnSpan, early *span) (err error) {
	switch name {
	case "role":
		t.role, err = d.role()
	case "input_ids": // a prompt that is not a list counts as unknown, because another source can provide it
		if c := d.space(); c != '[' && c != 'n' {
			return d.skip()
		}
		t.prompt, err = d.promptIDs()
	case "output_ids":
		t.output, err = d.ids()
	case "output_token_logprobs":
		if t.output.lo >= 0 {
			t.logprobs, t.mismatch, err = d.logprobs(d.out.ids[t.output.lo:t.output.hi])
			break
		}
		early.lo = len(d.out.ids)
		t.logprobs, _, err = d.logprobs(nil)
		early.hi = len(d.out.ids)
	case "content":
		t.content, err = d.text()
	case "tool_name": // only informative, so a value of another type is not an error
		if d.space() != '"' {
			return d.skip()
		}
		t.tool, err = d.text()
	default:
		err = d.skip()
	}
	return err
}

func (d *Decoder) role() (Role, error) {
	c := d.space()
	if c != '"' {
		return 0, d.wrongType("a role", c)
	}
	at := d.offset()
	d.i++
	var err error
	if d.key, err = d.str(d.key[:0], maxKeyBytes); err != nil {
		return 0, err
	}
	switch string(d.key) {
	case "assistant":
		return RoleAssistant, nil
	case "tool":
		return RoleTool, nil
	}
	return 0, &DecodeError{Offset: at, Err: &detailError{ErrSchema, "role is not assistant or tool"}}
}

// text decodes a string or null into the text arena.
func (d *Decoder) text() (span, error) {
	switch c := d.space(); c {
	case 'n':
		return noSpan, d.literal("null")
	case '"':
	default:
		return noSpan, d.wrongType("a string or null", c)
	}
	d.i++
	lo := len(d.out.text)
	text, err := d.str(d.out.text, int(^uint(0)>>1))
	d.out.text = text
	return span{lo, len(text)}, err
}

// firstMismatch returns the first position at which a and b differ, or -1 if there is none.
// Elements past the end of the shorter list are not compared.
func firstMismatch(a, b []int32) int {
	for k := range min(len(a), len(b)) {
		if a[k] != b[k] {
			return k
		}
	}
	return -1
}
