package bpe

import "strings"

// A normStep is one step of a normalizer.
type normStep struct {
	kind normKind
	from string // of Replace
	to   string // of Replace and Prepend
}

type normKind uint8

const (
	stepNFC normKind = iota
	stepPrepend
	stepReplace
)

// A normalizer holds the memory that normalizing a piece of text needs.
type normalizer struct {
	runes []markedRune
	out   []byte // what a step writes
	spare []byte // what the step before wrote
}

// normalize returns s after all steps, valid until the next call. s is valid
// UTF-8. Each step reads what the one before wrote, so that two buffers take turns.
func (n *normalizer) normalize(steps []normStep, s string) string {
	for i := range steps {
		n.out, n.spare = n.spare, n.out
		next, changed := n.apply(&steps[i], s)
		if !changed {
			n.out, n.spare = n.spare, n.out
		}
		s = next
	}
	return s
}

// apply returns s after one step, and whether it wrote that to n.out.
func (n *normalizer) apply(step *normStep, s string) (_ string, changed bool) {
	switch step.kind {
	case stepNFC:
		return n.nfc(s)
	case stepPrepend:
		if s == "" {
			return s, false
		}
		n.out = append(append(n.out[:0], step.to...), s...)
	case stepReplace:
		if !strings.Contains(s, step.from) {
			return s, false
		}
		n.out = appendReplaced(n.out[:0], s, step.from, step.to)
	}
	return stringOf(n.out), true
}

// appendReplaced appends s with each from in it replaced.
func appendReplaced(dst []byte, s, from, to string) []byte {
	for {
		i := strings.Index(s, from)
		if i < 0 {
			return append(dst, s...)
		}
		dst = append(append(dst, s[:i]...), to...)
		s = s[i+len(from):]
	}
}
