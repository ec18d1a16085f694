package tokenize

// reply decodes the whole reply: one object and nothing after it.
func (d *Decoder) reply() error {
	if c := d.space(); c != '{' {
		return d.wrongType("an object", c)
	}
	d.i++
	d.out.Rest = append(d.out.Rest, '{')
	seenTurns := false
	for first := true; ; first = false {
		c := d.space()
		if c == '}' && first {
			break
		}
		if c != '"' {
			return d.expected("a key", c)
		}
		at := d.offset()
		restLen := len(d.out.Rest)
		if restLen > 1 {
			d.out.Rest = append(d.out.Rest, ',')
		}
		d.keep = d.i
		if err := d.readKey(); err != nil {
			return err
		}
		var err error
		switch string(d.key) {
		case "turns":
			if seenTurns {
				return below(&DecodeError{Offset: at, Err: ErrDuplicateKey}, "turns")
			}
			seenTurns = true
			d.dropRest(restLen)
			if err = d.colon(); err == nil {
				err = d.turns()
			}
			if err != nil {
				return below(err, "turns") // d.key holds another key by now
			}
		case "logprobs":
			d.dropRest(restLen)
			if err = d.colon(); err == nil {
				err = d.skip(1)
			}
		default:
			if err = d.colon(); err == nil {
				err = d.skip(1)
			}
			if err == nil {
				d.flushRest()
				d.keep = -1
				if d.restOver {
					err = &DecodeError{Offset: at, Err: limitError("MaxRestBytes", int64(d.cfg.MaxRestBytes))}
				}
			}
		}
		if err != nil {
			return below(err, string(d.key))
		}
		switch c := d.space(); c {
		case ',':
			d.i++
			continue
		case '}':
		default:
			return d.expected("',' or '}'", c)
		}
		break
	}
	d.i++ // the brace
	d.out.Rest = append(d.out.Rest, '}')
	if c := d.space(); c != 0 {
		return d.fail(ErrSyntax, "expected the end of the reply")
	}
	if d.readErr != nil || d.over {
		return d.end()
	}
	return nil
}

// dropRest removes a key that does not belong to Rest.
func (d *Decoder) dropRest(length int) {
	d.keep, d.restOver = -1, false // the part of the key that was copied can have exceeded MaxRestBytes
	d.out.Rest = d.out.Rest[:length]
}

// readKey reads a key into d.key; buf[i] is its opening quote.
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

// turns decodes the value of `turns`.
func (d *Decoder) turns() error {
	switch c := d.space(); c {
	case 'n':
		return d.literal("null")
	case '[':
	default:
		return d.wrongType("a list of turns or null", c)
	}
	d.i++
	d.out.HasTurns = true
	if d.space() == ']' {
		d.i++
		return nil
	}
	for k := 0; ; k++ {
		if k == d.cfg.MaxTurns {
			return belowIndex(&DecodeError{Offset: d.offset(), Err: limitError("MaxTurns", int64(k))}, k)
		}
		if err := d.turn(); err != nil {
			return belowIndex(err, k)
		}
		switch c := d.space(); c {
		case ',':
			d.i++
		case ']':
			d.i++
			return nil
		default:
			return d.expected("',' or ']'", c)
		}
	}
}

// The fields of a turn, as bits of the set of fields seen.
const (
	sawRole = 1 << iota
	sawPrompt
	sawOutput
	sawLogprobs
	sawContent
	sawTool
)

// turnField returns the bit of a key, or 0 for an unknown key.
func turnField(key []byte) uint {
	switch string(key) {
	case "role":
		return sawRole
	case "input_ids":
		return sawPrompt
	case "output_ids":
		return sawOutput
	case "output_token_logprobs":
		return sawLogprobs
	case "content":
		return sawContent
	case "tool_name":
		return sawTool
	}
	return 0
}

// turn decodes one element of `turns`. The keys can have any order.
func (d *Decoder) turn() error {
	if c := d.space(); c != '{' {
		return d.wrongType("a turn", c)
	}
	start := d.offset()
	d.i++
	t := turnSpan{prompt: noSpan, output: noSpan, logprobs: noSpan, content: noSpan, tool: noSpan, mismatch: -1}
	// ids of the triples, if they came before output_ids
	early := noSpan
	var seen uint
	for first := true; ; first = false {
		c := d.space()
		if c == '}' && first {
			break
		}
		if c != '"' {
			return d.expected("a key", c)
		}
		at := d.offset()
		if err := d.readKey(); err != nil {
			return err
		}
		field := turnField(d.key)
		if seen&field != 0 {
			return below(&DecodeError{Offset: at, Err: ErrDuplicateKey}, string(d.key))
		}
		seen |= field
		err := d.colon()
		if err == nil {
			err = d.turnValue(field, &t, &early)
		}
		if err != nil {
			if field == 0 {
				return below(err, string(d.key))
			}
			return below(err, fieldName(field))
		}
		switch c := d.space(); c {
		case ',':
			d.i++
			continue
		case '}':
		default:
			return d.expected("',' or '}'", c)
		}
		break
	}
	d.i++
	if seen&sawRole == 0 {
		return &DecodeError{Offset: start, Err: &detailError{ErrSchema, "turn without a role"}}
	}
	if early.lo >= 0 && t.output.lo >= 0 {
		t.mismatch = firstMismatch(d.out.ids[t.output.lo:t.output.hi], d.out.ids[early.lo:early.hi])
	}
	d.out.spans = append(d.out.spans, t)
	return nil
}

// fieldName is the inverse of turnField. d.key can be overwritten by the time of an error.
func fieldName(field uint) string {
	switch field {
	case sawRole:
		return "role"
	case sawPrompt:
		return "input_ids"
	case sawOutput:
		return "output_ids"
	case sawLogprobs:
		return "output_token_logprobs"
	case sawContent:
		return "content"
	}
	return "tool_name"
}

func (d *Decoder) turnValue(field uint, t *turnSpan, early *span) (err error) {
	switch field {
	case sawRole:
		t.role, err = d.role()
	case sawPrompt: // a prompt that is not a list counts as unknown; another source can have it
		if c := d.space(); c != '[' && c != 'n' {
			return d.skip(3)
		}
		t.prompt, err = d.promptIDs()
	case sawOutput:
		t.output, err = d.ids()
	case sawLogprobs:
		if t.output.lo >= 0 {
			t.logprobs, t.mismatch, err = d.logprobs(d.out.ids[t.output.lo:t.output.hi])
			break
		}
		early.lo = len(d.out.ids)
		t.logprobs, _, err = d.logprobs(nil)
		early.hi = len(d.out.ids)
	case sawContent:
		t.content, err = d.text()
	case sawTool: // only informative, so another type is not an error
		if d.space() != '"' {
			return d.skip(3)
		}
		t.tool, err = d.text()
	default:
		err = d.skip(3)
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

// firstMismatch returns the first position at which the common part of both lists differs, or -1.
func firstMismatch(a, b []int32) int {
	for k := range min(len(a), len(b)) {
		if a[k] != b[k] {
			return k
		}
	}
	return -1
}
