package bpe

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A decoder converts the tokens of a vocabulary of characters to text. As in tokenizer.json, a
// decoder is a sequence of steps. The input of the first step is the list of the tokens' spellings.
//
//	tokens ─► before ─► ByteFallback ─► after ─► joined (Fuse) ─► trim
//
// The steps in the fields before and after handle one token at a time. A nil decoder stands for
// ByteLevel.
type decoder struct {
	before   []textStep
	fallback bool // true if tokens such as <0x0A> stand for bytes
	after    []textStep
	trim     []textStep // Strip steps for the joined text
	first    bool       // true if the first token decodes differently
}

// A textStep changes the text of one token.
type textStep struct {
	kind textKind
	from string // the string to replace; for the other kinds, the character to match
	to   string // for Replace
	n    int    // for Strip: the maximum number of characters to remove at the start
}

type textKind uint8

const (
	textReplace textKind = iota
	textStrip
	textMetaspace // replaces the mark with a space, or removes it in the first token
)

func readDecoder(p part) (*decoder, error) {
	d := &decoder{}
	fused := false
	if err := d.read(p, &fused, 0); err != nil {
		return nil, err
	}
	if n := len(d.before) + len(d.after) + len(d.trim); n > maxSteps {
		return nil, unsupported("decoder with %d steps (limit %d)", n, maxSteps)
	}
	growth := 1
	for _, steps := range [2][]textStep{d.before, d.after} {
		for i := range steps {
			if s := &steps[i]; s.kind == textReplace {
				growth = growBy(growth, s.from, s.to)
			}
		}
	}
	if growth > maxGrowth {
		return nil, unsupported("decoder that can make a token more than %d times longer", maxGrowth)
	}
	return d, nil
}

func (d *decoder) read(p part, fused *bool, depth int) error {
	const what = "decoder"
	name := p.name()
	if *fused && name != "Fuse" && name != "Strip" {
		return unsupported("decoder %s after Fuse", name)
	}
	switch name {
	case "Sequence":
		var s struct {
			Type     string `json:"type"`
			Decoders []part `json:"decoders"`
		}
		if err := strict(p.raw, what, &s); err != nil {
			return err
		}
		if depth > maxJSONDepth {
			return unsupported("decoder nested more than %d levels deep", maxJSONDepth)
		}
		for _, q := range s.Decoders {
			if err := d.read(q, fused, depth+1); err != nil {
				return err
			}
		}
		return nil
	case "Replace":
		from, to, err := readReplace(p, what)
		if err != nil {
			return err
		}
		d.add(textStep{kind: textReplace, from: from, to: to})
		return nil
	case "Metaspace":
		m, err := readMetaspace(p, what)
		if err != nil {
			return err
		}
		if m.prepend == prependNever {
			d.add(textStep{kind: textReplace, from: m.mark, to: " "})
		} else {
			d.add(textStep{kind: textMetaspace, from: m.mark})
			d.first = true
		}
		return nil
	case "Strip":
		s, err := readStrip(p)
		if err != nil {
			return err
		}
		if *fused {
			d.trim = append(d.trim, s)
		} else {
			d.add(s)
		}
		return nil
	case "ByteFallback", "Fuse":
		var s struct {
			Type string `json:"type"`
		}
		if err := strict(p.raw, what, &s); err != nil {
			return err
		}
		if name == "Fuse" {
			*fused = true
			return nil
		}
		if d.fallback {
			return unsupported("decoder with two ByteFallback steps")
		}
		d.fallback = true
		return nil
	}
	return unsupported("decoder %s in a vocabulary of characters", name)
}

func (d *decoder) add(s textStep) {
	if d.fallback {
		d.after = append(d.after, s)
	} else {
		d.before = append(d.before, s)
	}
}

func readStrip(p part) (textStep, error) {
	var s struct {
		Type    string `json:"type"`
		Content string `json:"content"`
		Start   int    `json:"start"`
		Stop    int    `json:"stop"`
	}
	if err := strict(p.raw, "decoder", &s); err != nil {
		return textStep{}, err
	}
	switch {
	case utf8.RuneCountInString(s.Content) != 1:
		return textStep{}, fmt.Errorf("%w: decoder Strip: content %q is not one character", ErrCorrupt, s.Content)
	case s.Stop != 0:
		return textStep{}, unsupported("decoder Strip with stop %d", s.Stop)
	case s.Start < 0 || s.Start > maxAddedLen:
		return textStep{}, unsupported("decoder Strip with start %d", s.Start)
	}
	return textStep{kind: textStrip, from: s.Content, n: s.Start}, nil
}

// applySteps returns the text of one token after the given steps. The parameter first must be true
// for the first token in the list.
func applySteps(s string, steps []textStep, first bool) string {
	for i := range steps {
		switch step := &steps[i]; step.kind {
		case textReplace:
			s = strings.ReplaceAll(s, step.from, step.to)
		case textStrip:
			for n := step.n; n > 0 && strings.HasPrefix(s, step.from); n-- {
				s = s[len(step.from):]
			}
		case textMetaspace:
			space := " "
			if first {
				space = ""
			}
			s = strings.ReplaceAll(s, step.from, space)
		}
	}
	return s
}

// spelledByte returns the byte of a token such as <0x0A>. Like the reference engine, it accepts
// digits in either case, and a plus sign in place of the first digit.
func spelledByte(s string) (byte, bool) {
	if len(s) != 6 || s[:3] != "<0x" || s[5] != '>' {
		return 0, false
	}
	v, err := strconv.ParseInt(s[3:5], 16, 16)
	return byte(v), err == nil && s[3] != '-'
}
